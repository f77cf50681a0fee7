// Command weft-bench-go is the Go side of weft-bench: one benchmark a process, the same names, the
// same loop shapes, the same calibration as the C side in the directory above, which starts it as
//
//	weft-bench-go NAME PROCS
//
// and reads lines `figure ROW VALUE` or `fail WHY`.
package main

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const target = 250 * time.Millisecond

// loopBench does n operations and returns the time that they took.
type loopBench struct {
	loop            func(n int64) time.Duration
	step            int64 // n is a multiple of it
	setup, teardown func()
}

var (
	loops  = map[string]loopBench{}
	wholes = map[string]func(){}
)

var start = time.Now()

// now is a monotonic clock.
func now() time.Duration { return time.Since(start) }

func usage() syscall.Rusage {
	var u syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &u) == nil, "getrusage")
	return u
}

// cpu is the user and system time of this process.
func cpu() time.Duration {
	u := usage()
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func emit(row string, value float64) { fmt.Printf("figure %s %.9g\n", row, value) }

func check(ok bool, format string, args ...any) {
	if !ok {
		fmt.Printf("fail "+format+"\n", args...)
		os.Exit(1)
	}
}

// parallel runs body(i) for i in 0..workers-1, each in a goroutine of its own, waits for all, and
// returns the time from the first start to the last end.
func parallel(workers int, body func(i int)) time.Duration {
	var all sync.WaitGroup
	begin := now()
	all.Add(workers)
	for i := 0; i < workers; i++ {
		go func() {
			body(i)
			all.Done()
		}()
	}
	all.Wait()
	return now() - begin
}

// parked are goroutines that wait for a channel.
type parked struct {
	count         int64
	gate          chan struct{}
	all           sync.WaitGroup
	arrived, left atomic.Int64
}

// park returns a second after the last has come.
func park(count int) *parked {
	p := &parked{count: int64(count), gate: make(chan struct{})}
	atGate := func() {
		p.arrived.Add(1)
		_, open := <-p.gate
		check(!open, "something came through a closed gate")
		p.left.Add(1)
		p.all.Done()
	}
	p.all.Add(count)
	for i := 0; i < count; i++ {
		go atGate()
	}
	for p.arrived.Load() < p.count {
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(time.Second)
	return p
}

func (p *parked) unpark() {
	check(p.left.Load() == 0, "some did not stay parked")
	close(p.gate)
	p.all.Wait()
	check(p.left.Load() == p.count, "some were not woken")
}

// percentile is the smallest of the sorted values that at least `percent` of them do not exceed.
func percentile(sorted []int64, percent float64) int64 {
	rank := int(math.Ceil(float64(len(sorted)) * percent / 100))
	return sorted[max(rank, 1)-1]
}

func sorted(values []int64) []int64 {
	slices.Sort(values)
	return values
}

// random is xorshift64, as on the C side.
func random(state *uint64) uint64 {
	x := *state
	x ^= x << 13
	x ^= x >> 7
	x ^= x << 17
	*state = x
	return x
}

// nextN is at least twice, at most a hundred times n; between them what the last run says about
// `want`.
func nextN(n int64, took, want time.Duration) int64 {
	guess := 100 * float64(n)
	if took > 0 {
		guess = min(guess, float64(n)*float64(want)/float64(took))
	}
	return max(2*n, int64(guess))
}

func wholeSteps(n, step int64) int64 { return (n + step - 1) / step * step }

func runLoop(name string, b loopBench) {
	step := max(b.step, 1)
	n := step
	took := b.loop(n)
	for took < target/10 {
		n = wholeSteps(nextN(n, took, target/5), step)
		took = b.loop(n)
	}
	n = wholeSteps(int64(float64(n)*float64(target)/float64(took)), step)
	took = b.loop(n)
	emit(name, float64(took)/float64(n))
}

func run(name string) {
	if whole, ok := wholes[name]; ok {
		whole()
		return
	}
	b, ok := loops[name]
	check(ok, "Go has no benchmark %s", name)
	if b.setup != nil {
		b.setup()
	}
	runLoop(name, b)
	if b.teardown != nil {
		b.teardown()
	}
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: weft-bench-go NAME PROCS")
		os.Exit(2)
	}
	procs, err := strconv.Atoi(os.Args[2])
	check(err == nil && procs > 0, "PROCS is a number")
	runtime.GOMAXPROCS(procs)
	run(os.Args[1])
}
