package main

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

func init() {
	loops["SpawnJoin1"] = loopBench{loop: func(n int64) time.Duration { return spawnJoin(n, 1) }}
	loops["SpawnJoin1000"] = loopBench{
		loop: func(n int64) time.Duration { return spawnJoin(n, 1000) }, step: 1000}
	loops["Yield2"] = loopBench{loop: func(n int64) time.Duration { return yield(n, 2) }, step: 2}
	loops["Yield1000"] = loopBench{
		loop: func(n int64) time.Duration { return yield(n, 1000) }, step: 1000}
	wholes["Skynet"] = skynet
	wholes["ComputeTwo"] = computeTwo
	wholes["ParkedIdle"] = parkedIdle
}

// One closure for all goroutines of a run: `go f()` then allocates nothing but the goroutine.
func startAndJoin(all *sync.WaitGroup, f func(), atOnce int64) {
	all.Add(int(atOnce))
	for i := int64(0); i < atOnce; i++ {
		go f()
	}
	all.Wait()
}

func checkJoin(atOnce int64) {
	var all sync.WaitGroup
	var ran atomic.Int64
	countAndDone := func() {
		ran.Add(1)
		all.Done()
	}
	for round := int64(1); round <= 1000/atOnce+1; round++ {
		startAndJoin(&all, countAndDone, atOnce)
		check(ran.Load() == round*atOnce, "%d goroutines ran, not %d", ran.Load(), round*atOnce)
	}
}

func spawnJoin(n, atOnce int64) time.Duration {
	checkJoin(atOnce)
	var all sync.WaitGroup
	justDone := func() { all.Done() }
	begin := now()
	for i := int64(0); i < n; i += atOnce {
		startAndJoin(&all, justDone, atOnce)
	}
	return now() - begin
}

// One in ten is forgiven: Go looks at its global queue first every 61st time and may find the one
// there that has just yielded.
func checkYield(count int) {
	const total = 10000
	var last, alone atomic.Int64
	parallel(count, func(i int) {
		for k := 0; k < total/count; k++ {
			last.Store(int64(i))
			runtime.Gosched()
			if last.Load() == int64(i) {
				alone.Add(1)
			}
		}
	})
	check(runtime.GOMAXPROCS(0) > 1 || alone.Load() <= total/10,
		"%d of %d yields let nobody else run", alone.Load(), total)
}

func yield(n int64, count int) time.Duration {
	checkYield(count)
	each := n / int64(count)
	var yields atomic.Int64
	took := parallel(count, func(i int) {
		for k := int64(0); k < each; k++ {
			runtime.Gosched()
		}
		yields.Add(each)
	})
	check(yields.Load() == n, "yields are missing")
	return took
}

const leaves = 1000000

func skynetNode(up chan int64, first, leaves int64) {
	if leaves == 1 {
		up <- first
		return
	}
	sums := make(chan int64)
	for i := int64(0); i < 10; i++ {
		go skynetNode(sums, first+i*leaves/10, leaves/10)
	}
	var sum int64
	for i := 0; i < 10; i++ {
		sum += <-sums
	}
	up <- sum
}

func skynet() {
	begin := now()
	top := make(chan int64)
	go skynetNode(top, 0, leaves)
	sum := <-top
	took := now() - begin
	check(sum == leaves*(leaves-1)/2, "the sum is %d", sum)
	emit("Skynet", float64(took)/1e6)
}

const (
	computeSteps = 30 * 1000 * 1000
	computeTries = 5
)

var computed [2]uint64

func compute(i int) {
	x := uint64(88172645463325252)
	for k := 0; k < computeSteps; k++ {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
	}
	computed[i] = x
}

func computeTwoOn(procs int) time.Duration {
	before := runtime.GOMAXPROCS(procs)
	defer runtime.GOMAXPROCS(before)
	best := time.Hour
	for i := 0; i < computeTries; i++ {
		computed = [2]uint64{}
		best = min(best, parallel(2, compute))
		check(computed[0] == computed[1] && computed[0] != 0, "two sums differ")
	}
	return best
}

func computeTwo() {
	procs := runtime.GOMAXPROCS(0)
	here := computeTwoOn(procs)
	emit("ComputeTwo", float64(here)/1e6)
	if procs > 1 {
		emit("ComputeTwoShare", float64(here)/float64(computeTwoOn(1)))
	}
}

const (
	parkedCount   = 10000
	parkedSeconds = 5
)

func parkedIdle() {
	p := park(parkedCount)
	used, switches := cpu(), usage().Nvcsw
	time.Sleep(parkedSeconds * time.Second)
	used, switches = cpu()-used, usage().Nvcsw-switches
	p.unpark()
	emit("ParkedIdleCpu", float64(used)/1e6)
	emit("ParkedIdleSwitches", float64(switches))
}
