package main

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

const (
	batch      = 1000
	idleTimers = 32768 // a P
)

func init() {
	behind := func(loop func(n int64) time.Duration, step int64) loopBench {
		return loopBench{loop, step, idleSetup, idleTeardown}
	}
	loops["AfterFunc"] = behind(spread(afterFunc, batch), batch)
	loops["After"] = behind(spread(after, 1), 1)
	loops["Stop"] = behind(spread(stop, 1), 1)
	loops["SimultaneousAfterFunc"] = behind(spread(simultaneous, batch), batch)
	loops["StartStop"] = behind(spread(startStop, batch), batch)
	loops["Reset"] = behind(spread(reset, 1), 1)
	loops["ResetFunc"] = behind(spread(resetFunc, 1), 1)
	loops["Sleep"] = behind(spread(sleep, batch), batch)
	wholes["ParallelTimerLatency"] = parallelTimerLatency
	wholes["Sleep100usLate"] = sleep100usLate
	wholes["Sleepers"] = sleepers
	wholes["ParkedTicker"] = parkedTicker
}

var (
	idle         [][]*time.Timer
	wronglyFired atomic.Int64
)

func fireWrongly() { wronglyFired.Add(1) }

func idleSetup() {
	idle = make([][]*time.Timer, runtime.GOMAXPROCS(0))
	parallel(len(idle), func(i int) {
		idle[i] = make([]*time.Timer, idleTimers)
		for k := range idle[i] {
			idle[i][k] = time.AfterFunc(time.Hour, fireWrongly)
		}
	})
}

func idleTeardown() {
	gone := 0
	for _, timers := range idle {
		for _, t := range timers {
			if !t.Stop() {
				gone++
			}
		}
	}
	check(gone == 0 && wronglyFired.Load() == 0, "%d timers of an hour are gone", gone)
}

// spread does n operations in as many goroutines as there are Ps, in whole steps.
func spread(body func(n int64), step int64) func(n int64) time.Duration {
	return func(n int64) time.Duration {
		batches, w := n/step, int64(runtime.GOMAXPROCS(0))
		return parallel(int(w), func(i int) { body((batches + w - 1 - int64(i)) / w * step) })
	}
}

func afterFunc(n int64) {
	for i := int64(0); i < n; i += batch {
		left := batch
		done := make(chan bool)
		var link func()
		link = func() {
			left--
			if left > 0 {
				time.AfterFunc(0, link)
			} else {
				done <- true
			}
		}
		time.AfterFunc(0, link)
		yes := <-done
		check(yes && left == 0, "a chain ended %d firings early", left)
	}
}

func simultaneous(n int64) {
	for i := int64(0); i < n; i += batch {
		var all sync.WaitGroup
		all.Add(batch)
		for k := 0; k < batch; k++ {
			time.AfterFunc(0, all.Done)
		}
		all.Wait()
	}
}

func after(n int64) {
	for i := int64(0); i < n; i++ {
		<-time.After(time.Nanosecond)
	}
}

func stop(n int64) {
	var stopped int64
	for i := int64(0); i < n; i++ {
		if time.NewTimer(time.Second).Stop() {
			stopped++
		}
	}
	check(stopped == n, "%d of %d timers were pending", stopped, n)
}

func startStop(n int64) {
	var stopped int64
	var timers [batch]*time.Timer
	for i := int64(0); i < n; i += batch {
		for k := range timers {
			timers[k] = time.AfterFunc(time.Hour, fireWrongly)
		}
		for k := range timers {
			if timers[k].Stop() {
				stopped++
			}
		}
	}
	check(stopped == n, "%d of %d timers were pending", stopped, n)
}

func resetTimer(t *time.Timer, n int64) {
	var pending int64
	for i := int64(0); i < n; i++ {
		if t.Reset(time.Hour) {
			pending++
		}
	}
	check(pending == n && t.Stop(), "a timer of an hour was not pending")
}

func reset(n int64) { resetTimer(time.NewTimer(time.Hour), n) }

func resetFunc(n int64) { resetTimer(time.AfterFunc(time.Hour, fireWrongly), n) }

func sleep(n int64) {
	for i := int64(0); i < n; i += batch {
		var all sync.WaitGroup
		sleepAndDone := func() {
			time.Sleep(time.Nanosecond)
			all.Done()
		}
		all.Add(batch)
		for k := 0; k < batch; k++ {
			go sleepAndDone()
		}
		all.Wait()
	}
}

func sleep100usLate() {
	const sleeps, length = 1000, 100 * time.Microsecond
	late := make([]int64, sleeps)
	for i := range late {
		begin := now()
		time.Sleep(length)
		late[i] = int64(now() - begin - length)
		check(late[i] >= 0, "a sleep ended %d ns early", -late[i])
	}
	sorted(late)
	emit("Sleep100usLateP50", float64(percentile(late, 50))/1e3)
	emit("Sleep100usLateP99", float64(percentile(late, 99))/1e3)
}

// sleepers: a second to start 100,000, then a second in which they wake, each at a time of its own.
func sleepers() {
	const count = 100000
	late := make([]int64, count)
	var all sync.WaitGroup
	state := uint64(88172645463325252)
	cpuStart := cpu()
	window := time.Now().Add(time.Second)
	all.Add(count)
	for i := range late {
		until := window.Add(time.Duration(random(&state) % uint64(time.Second)))
		go func() {
			time.Sleep(time.Until(until))
			late[i] = int64(time.Since(until))
			all.Done()
		}()
	}
	check(time.Until(window) > 0, "starting them took over a second")
	time.Sleep(time.Until(window))
	cpuWindow := cpu()
	all.Wait()
	cpuEnd := cpu()
	sorted(late)
	check(late[0] >= 0, "a sleep ended %d ns early", -late[0])
	emit("SleepersLateP50", float64(percentile(late, 50))/1e3)
	emit("SleepersLateP99", float64(percentile(late, 99))/1e3)
	emit("SleepersCpu", float64(cpuEnd-cpuStart)/1e6)
	emit("SleepersFireCpu", float64(cpuEnd-cpuWindow)/1e6)
}

func parkedTicker() {
	const seconds, ticks = 3, 300
	p := park(parkedCount)
	t := time.NewTimer(time.Hour)
	used := cpu()
	begin := time.Now()
	for i := 1; i <= ticks; i++ {
		t.Reset(time.Until(begin.Add(time.Duration(i) * 10 * time.Millisecond)))
		<-t.C
	}
	took := time.Since(begin)
	used = cpu() - used
	check(took >= seconds*time.Second, "%d ticks took %v", ticks, took)
	p.unpark()
	emit("ParkedTickerCpu", float64(used)/1e6/took.Seconds())
}

func spinFor(d time.Duration) {
	for end := now() + d; now() < end; {
	}
}

// parallelTimerLatency: one P spins, and arms a timer of 1 ms for each of the others, which have
// gone to sleep. Each function spins until all have fired, so that each needs a P of its own.
func parallelTimerLatency() {
	const tries = 20
	others := int32(runtime.GOMAXPROCS(0) - 1)
	late := make([]time.Duration, others)
	var sum, worst time.Duration
	for k := 0; k < tries; k++ {
		fired := new(atomic.Int32)
		spinFor(30 * time.Millisecond)
		for i := range late {
			due := now() + time.Millisecond
			time.AfterFunc(time.Millisecond, func() {
				late[i] = now() - due
				fired.Add(1)
				for fired.Load() < others {
				}
			})
		}
		for fired.Load() < others {
		}
		for _, l := range late {
			check(l >= 0, "a timer was %v early", -l)
			sum += l
			worst = max(worst, l)
		}
	}
	emit("ParallelTimerLateAvg", float64(sum)/float64(tries*others)/1e3)
	emit("ParallelTimerLateMax", float64(worst)/1e3)
}
