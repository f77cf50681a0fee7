package main

import (
	"runtime"
	"sync"
	"time"
)

func init() {
	loops["MutexUncontended1"] = loopBench{loop: mutexUncontended}
	loops["MutexContended"] = loopBench{loop: mutexContended, step: lockers}
	loops["WaitGroupAddDoneWait"] = loopBench{loop: waitGroup}
	loops["EventPingPong"] = loopBench{loop: eventPingPong}
}

func mutexUncontended(n int64) time.Duration {
	m := new(sync.Mutex)
	begin := now()
	for i := int64(0); i < n; i++ {
		m.Lock()
		m.Unlock()
	}
	took := now() - begin
	m.Lock()
	check(!m.TryLock(), "a locked mutex was locked again")
	m.Unlock()
	return took
}

const lockers = 8

func mutexContended(n int64) time.Duration {
	var m sync.Mutex
	var count int64
	each := n / lockers
	took := parallel(lockers, func(int) {
		for k := int64(0); k < each; k++ {
			m.Lock()
			count++
			m.Unlock()
		}
	})
	check(count == n, "%d of %d additions under the lock are left", count, n)
	return took
}

func waitGroup(n int64) time.Duration {
	all := new(sync.WaitGroup)
	passed := 0
	all.Add(1)
	go func() {
		runtime.Gosched()
		passed = 1
		all.Done()
	}()
	all.Wait()
	check(passed == 1, "a wait did not wait")
	begin := now()
	for i := int64(0); i < n; i++ {
		all.Add(1)
		all.Done()
		all.Wait()
	}
	return now() - begin
}

// eventPingPong: the nearest thing Go has to an event that is set, waited for and reset is a
// channel of one empty value.
func eventPingPong(n int64) time.Duration {
	there, back := make(chan struct{}, 1), make(chan struct{}, 1)
	var count int64
	go func() {
		for i := int64(0); i < n; i++ {
			<-there
			count++
			back <- struct{}{}
		}
	}()
	begin := now()
	for i := int64(0); i < n; i++ {
		there <- struct{}{}
		<-back
	}
	took := now() - begin
	check(count == n, "%d of %d turns were taken", count, n)
	return took
}
