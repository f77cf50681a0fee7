package main

import (
	"sync/atomic"
	"time"
)

func init() {
	loops["Unbuf_1P1C"] = loopBench{loop: func(n int64) time.Duration { return stream(n, 1, 0) }}
	loops["Unbuf_4P4C"] = loopBench{
		loop: func(n int64) time.Duration { return stream(n, 4, 0) }, step: 4}
	loops["Buffered128_1P1C"] = loopBench{
		loop: func(n int64) time.Duration { return stream(n, 1, 128) }}
	loops["Buffered128_4P4C"] = loopBench{
		loop: func(n int64) time.Duration { return stream(n, 4, 128) }, step: 4}
	loops["PingPong"] = loopBench{loop: pingPong}
}

// stream passes n values from `side` producers to as many consumers; the last producer closes.
func stream(n int64, side int, capacity int) time.Duration {
	c := make(chan int64, capacity)
	each := n / int64(side)
	var producing atomic.Int32
	producing.Store(int32(side))
	sums, counts := make([]int64, side), make([]int64, side)
	took := parallel(2*side, func(i int) {
		if i < side {
			for v := int64(1); v <= each; v++ {
				c <- v
			}
			if producing.Add(-1) == 0 {
				close(c)
			}
			return
		}
		var sum, count int64
		for v := range c {
			sum += v
			count++
		}
		sums[i-side], counts[i-side] = sum, count
	})
	var sum, count int64
	for i := range sums {
		sum += sums[i]
		count += counts[i]
	}
	check(count == n && sum == int64(side)*(each*(each+1)/2),
		"%d values of %d came through, their sum is %d", count, n, sum)
	return took
}

func pingPong(n int64) time.Duration {
	there, back := make(chan int64), make(chan int64)
	go func() {
		for v := range there {
			back <- v + 1
		}
		close(back)
	}()
	var v int64
	begin := now()
	for i := int64(0); i < n; i++ {
		there <- v
		v = <-back
	}
	took := now() - begin
	check(v == n, "the ball came back %d times, not %d", v, n)
	close(there)
	_, open := <-back
	check(!open, "the other side did not end")
	return took
}
