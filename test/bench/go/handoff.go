package main

import (
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// The blocking calls here are raw system calls, which the runtime does not see: the nearest thing to C
// that is not marked. There is none for a look-up: Go's own resolver stands in its place, and parks.
// Go has no plain threads: who holds what a call waits for is a goroutine locked to a thread, whose
// sleeps are calls that the runtime does see.
func init() {
	for _, k := range blockKinds {
		wholes["Block"+k.name] = func() { blockMeasure(k, k.name) }
	}
	wholes["ComputeBehind"] = computeBehind
	wholes["SleepHogs"] = func() { sleepBeside(0, "SleepHogs") }
	wholes["SleepHogs30"] = func() { sleepBeside(30*time.Millisecond, "SleepHogs30") }
	wholes["SpawnHogs"] = spawnHogs
	loops["TryEmpty"] = loopBench{loop: tryEmpty}
	loops["PassAlone"] = loopBench{loop: passAlone}
}

// hogs compute, and yield after each slice; with none they never call.
type hogs struct {
	stop atomic.Bool
	all  sync.WaitGroup
}

func computeFor(d time.Duration) {
	for end := now() + d; now() < end; {
	}
}

func hogsBegin(count int, slice time.Duration) *hogs {
	h := &hogs{}
	h.all.Add(count)
	for i := 0; i < count; i++ {
		go func() {
			for !h.stop.Load() {
				if slice > 0 {
					computeFor(slice)
					runtime.Gosched()
				}
			}
			h.all.Done()
		}()
	}
	return h
}

func (h *hogs) end() {
	h.stop.Store(true)
	h.all.Wait()
}

// probe notes when it runs.
type probe struct{ ran atomic.Int64 }

func (p *probe) start() { go func() { p.ran.Store(int64(now())) }() }

func emitPercentiles(name string, ns []int64) {
	sorted(ns)
	emit(name+"P50", float64(percentile(ns, 50))/1e3)
	emit(name+"P99", float64(percentile(ns, 99))/1e3)
}

const (
	blockRounds = 200
	hogSlice    = 20 * time.Microsecond
	heldFor     = 5 * time.Millisecond
	sleptFor    = 20 * time.Millisecond
	fsyncBytes  = 64 * 1024
)

// holder has what the call waits for, and gives it back a little after it was told of the call.
type holder struct {
	held, taken chan bool
	going       chan bool // it has heard: it lies in no queue behind the caller, who blocks its P
	goOn        chan bool // true: the last time
	all         sync.WaitGroup
}

func holderBegin(take, give func()) *holder {
	h := &holder{held: make(chan bool, 1), taken: make(chan bool, 1), going: make(chan bool),
		goOn: make(chan bool, 1)}
	h.all.Add(1)
	go func() {
		runtime.LockOSThread()
		for {
			take()
			h.held <- true
			last := <-h.goOn
			if last {
				break
			}
			h.going <- true
			ts := syscall.NsecToTimespec(int64(heldFor))
			for syscall.Nanosleep(&ts, &ts) != nil {
			}
			give()
			<-h.taken
		}
		h.all.Done()
	}()
	return h
}

func (h *holder) arm() {
	<-h.held
	h.goOn <- false
	<-h.going
}

func (h *holder) end() {
	<-h.held
	h.goOn <- true
	h.all.Wait()
}

// again makes a raw call until no signal cuts it short, which the runtime sends to preempt.
func again(what string, call func() syscall.Errno) {
	err := call()
	for err == syscall.EINTR || err == syscall.EAGAIN {
		err = call()
	}
	check(err == 0, "%s: %v", what, err)
}

type blockKind struct {
	name  string
	begin func() (arm, call, end func())
}

var blockKinds = []blockKind{
	{"Nanosleep", beginNanosleep}, {"Read", beginRead}, {"Fsync", beginFsync},
	{"Flock", beginFlock}, {"Getaddrinfo", beginLookup}, {"Mutex", beginMutex},
}

func nothing() {}

func beginNanosleep() (arm, call, end func()) {
	return nothing, func() {
		ts := syscall.NsecToTimespec(int64(sleptFor))
		again("nanosleep", func() syscall.Errno {
			_, _, err := syscall.RawSyscall(syscall.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&ts)),
				uintptr(unsafe.Pointer(&ts)), 0)
			return err
		})
	}, nothing
}

func beginRead() (arm, call, end func()) {
	var ends [2]int
	check(syscall.Pipe(ends[:]) == nil, "no pipe")
	h := holderBegin(nothing, func() {
		n, err := syscall.Write(ends[1], []byte("x"))
		check(n == 1, "write to a pipe: %v", err)
	})
	return h.arm, func() {
		var buf [1]byte
		again("read", func() syscall.Errno {
			_, _, err := syscall.RawSyscall(syscall.SYS_READ, uintptr(ends[0]),
				uintptr(unsafe.Pointer(&buf[0])), 1)
			return err
		})
		h.taken <- true
	}, h.end
}

// temporary is a file without a name, opened twice.
func temporary() (file, other *os.File) {
	file, err := os.CreateTemp("", "weft-bench")
	check(err == nil, "no temporary file: %v", err)
	other, err = os.OpenFile(file.Name(), os.O_RDWR, 0)
	check(err == nil, "no temporary file: %v", err)
	os.Remove(file.Name())
	return file, other
}

func beginFsync() (arm, call, end func()) {
	file, other := temporary()
	data := make([]byte, fsyncBytes)
	fd := int(file.Fd())
	return func() {
			for i := range data {
				data[i]++
			}
			n, err := syscall.Pwrite(fd, data, 0)
			check(n == fsyncBytes, "write to a file: %v", err)
		}, func() {
			again("fsync", func() syscall.Errno {
				_, _, err := syscall.RawSyscall(syscall.SYS_FSYNC, uintptr(fd), 0, 0)
				return err
			})
		}, func() {
			file.Close()
			other.Close()
		}
}

func flockRaw(fd int, how int) {
	again("flock", func() syscall.Errno {
		_, _, err := syscall.RawSyscall(syscall.SYS_FLOCK, uintptr(fd), uintptr(how), 0)
		return err
	})
}

func beginFlock() (arm, call, end func()) {
	file, other := temporary()
	fd, otherFd := int(file.Fd()), int(other.Fd())
	h := holderBegin(func() { check(syscall.Flock(otherFd, syscall.LOCK_EX) == nil, "flock") },
		func() { check(syscall.Flock(otherFd, syscall.LOCK_UN) == nil, "flock") })
	return h.arm, func() {
			flockRaw(fd, syscall.LOCK_EX)
			flockRaw(fd, syscall.LOCK_UN)
			h.taken <- true
		}, func() {
			h.end()
			file.Close()
			other.Close()
		}
}

func beginLookup() (arm, call, end func()) {
	return nothing, func() {
		found, err := net.LookupHost("localhost")
		check(err == nil && len(found) > 0, "look-up: %v", err)
	}, nothing
}

const (
	futexWait = 0
	futexWake = 1
)

func futex(word *uint32, op, value uint32) syscall.Errno {
	_, _, err := syscall.RawSyscall6(syscall.SYS_FUTEX, uintptr(unsafe.Pointer(word)), uintptr(op),
		uintptr(value), 0, 0, 0)
	return err
}

// beginMutex waits as a lock of the C library does: by a futex.
func beginMutex() (arm, call, end func()) {
	word := new(uint32)
	h := holderBegin(func() { atomic.StoreUint32(word, 1) }, func() {
		atomic.StoreUint32(word, 0)
		futex(word, futexWake, 1)
	})
	return h.arm, func() {
		for atomic.LoadUint32(word) != 0 {
			futex(word, futexWait, 1)
		}
		h.taken <- true
	}, h.end
}

func waitOfTheNext(arm, call func()) int64 {
	var p probe
	arm()
	p.start()
	begun := int64(now())
	call()
	for p.ran.Load() == 0 {
		runtime.Gosched()
	}
	return max(p.ran.Load()-begun, 0)
}

func blockMeasure(k blockKind, name string) {
	waited := make([]int64, blockRounds)
	// A collection stops the world, which a raw call holds up till the holder ends it, who is stopped.
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	arm, call, end := k.begin()
	h := hogsBegin(runtime.GOMAXPROCS(0), hogSlice)
	time.Sleep(20 * time.Millisecond)
	for i := range waited {
		waited[i] = waitOfTheNext(arm, call)
		time.Sleep(100 * time.Microsecond)
	}
	h.end()
	end()
	emitPercentiles(name, waited)
}

const behindRounds = 60

func computeBehind() {
	var waited []int64
	procs := runtime.GOMAXPROCS(0)
	for round := 0; round < behindRounds; round++ {
		var arrived atomic.Int32
		mine := make([]int64, procs)
		parallel(procs, func(i int) {
			var p probe
			arrived.Add(1)
			for arrived.Load() < int32(procs) {
			}
			p.start()
			begun := int64(now())
			computeFor(30 * time.Millisecond)
			for p.ran.Load() == 0 {
				runtime.Gosched()
			}
			mine[i] = max(p.ran.Load()-begun, 0)
		})
		waited = append(waited, mine...)
	}
	emitPercentiles("ComputeBehind", waited)
}

const (
	hogSleeps = 300
	hogSpawns = 100
)

func sleepBeside(slice time.Duration, name string) {
	late := make([]int64, hogSleeps)
	h := hogsBegin(runtime.GOMAXPROCS(0), slice)
	for i := range late {
		begun := now()
		time.Sleep(time.Millisecond)
		late[i] = int64(now() - begun - time.Millisecond)
		check(late[i] >= 0, "a sleep of 1 ms was early")
	}
	h.end()
	emitPercentiles(name+"Late", late)
}

func spawnHogs() {
	waited := make([]int64, hogSpawns)
	h := hogsBegin(runtime.GOMAXPROCS(0), 30*time.Millisecond)
	for i := range waited {
		var p probe
		runtime.Gosched()
		begun := int64(now())
		p.start()
		for p.ran.Load() == 0 {
		}
		waited[i] = p.ran.Load() - begun
	}
	h.end()
	emitPercentiles("SpawnHogs", waited)
}

const callsAYield = 4096

func tryEmpty(n int64) time.Duration {
	c := make(chan int64, 1)
	begin, empty := now(), int64(0)
	for i := int64(0); i < n; i++ {
		if i%callsAYield == 0 {
			runtime.Gosched()
		}
		select {
		case <-c:
		default:
			empty++
		}
	}
	took := now() - begin
	check(empty == n, "a channel without senders gave a value")
	return took
}

func passAlone(n int64) time.Duration {
	c := make(chan int64, 1)
	begin, sum := now(), int64(0)
	for i := int64(0); i < n; i++ {
		c <- i
		sum += <-c
	}
	took := now() - begin
	check(sum == n*(n-1)/2, "values are missing")
	return took
}
