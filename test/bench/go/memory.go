package main

import (
	"fmt"
	"os"
	"strings"
)

func init() {
	wholes["ParkedBytes100k"] = func() { parkedBytes("ParkedBytes100k", 100000) }
	wholes["ParkedBytes1M"] = func() { parkedBytes("ParkedBytes1M", 1000000) }
}

// resident is resident memory and page tables of this process, bytes.
func resident() int64 {
	text, err := os.ReadFile("/proc/self/status")
	check(err == nil, "%v", err)
	var total int64
	found := 0
	for _, line := range strings.Split(string(text), "\n") {
		var kib int64
		for _, key := range []string{"VmRSS:", "VmPTE:"} {
			if rest, ok := strings.CutPrefix(line, key); ok {
				_, err := fmt.Sscanf(rest, "%d kB", &kib)
				check(err == nil, "%q", line)
				total += kib * 1024
				found++
			}
		}
	}
	check(found == 2, "no VmRSS and VmPTE in /proc/self/status")
	return total
}

func parkedBytes(row string, count int) {
	before := resident()
	p := park(count)
	bytes := resident() - before
	p.unpark()
	emit(row, float64(bytes)/float64(count))
}
