package main

/*
#include <fcntl.h>
#include <netdb.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

static void plain_sleep(long ns) {
	struct timespec t = {.tv_nsec = ns};
	while (nanosleep(&t, &t) != 0) {
	}
}

// A thread of its own that gives back, after `after`, what a call waits for.
static int ends[2], other_file;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_t thread;
static pthread_barrier_t held;

enum { PIPE, FILE_LOCK, MUTEX };
static int what;
static long after;

static void *hold_once(void *arg) {
	if (what == FILE_LOCK) {
		flock(other_file, LOCK_EX);
	} else if (what == MUTEX) {
		pthread_mutex_lock(&mutex);
	}
	pthread_barrier_wait(&held);
	plain_sleep(after);
	if (what == PIPE) {
		(void)!write(ends[1], "x", 1);
	} else if (what == FILE_LOCK) {
		flock(other_file, LOCK_UN);
	} else {
		pthread_mutex_unlock(&mutex);
	}
	return arg;
}

static int hold_begin(int kind, int file, long ns) {
	what = kind;
	other_file = file;
	after = ns;
	pthread_barrier_init(&held, NULL, 2);
	return kind == PIPE && ends[0] == 0 ? pipe(ends) : 0;
}
static int hold_arm(void) {
	int err = pthread_create(&thread, NULL, hold_once, NULL);
	pthread_barrier_wait(&held);
	return err;
}
static void hold_join(void) { pthread_join(thread, NULL); }

static int call_read(void) {
	char byte;
	return read(ends[0], &byte, 1) == 1;
}
static int call_flock(int file) { return flock(file, LOCK_EX) == 0 && flock(file, LOCK_UN) == 0; }
static void call_mutex(void) {
	pthread_mutex_lock(&mutex);
	pthread_mutex_unlock(&mutex);
}
static int call_getaddrinfo(void) {
	struct addrinfo *found = NULL;
	int err = getaddrinfo("localhost", "80", NULL, &found);
	if (err == 0) {
		freeaddrinfo(found);
	}
	return err;
}
*/
import "C"

// The calls of handoff.go again, by C. This file is built only where Go finds a C compiler.
func init() {
	kinds := []blockKind{
		{"Nanosleep", cgoNanosleep}, {"Read", cgoRead}, {"Fsync", cgoFsync},
		{"Flock", cgoFlock}, {"Getaddrinfo", cgoLookup}, {"Mutex", cgoMutex},
	}
	for _, k := range kinds {
		wholes["Block"+k.name+"Cgo"] = func() { blockMeasure(k, k.name+"Cgo") }
	}
}

func cgoNanosleep() (arm, call, end func()) {
	return nothing, func() { C.plain_sleep(C.long(sleptFor)) }, nothing
}

// held is a thread of C that holds, told right before the call.
func held(kind C.int, file int, call func()) (func(), func(), func()) {
	check(C.hold_begin(kind, C.int(file), C.long(heldFor)) == 0, "no pipe")
	armed := false
	return func() {
		if armed {
			C.hold_join()
		}
		check(C.hold_arm() == 0, "no thread")
		armed = true
	}, call, func() { C.hold_join() }
}

func cgoRead() (arm, call, end func()) {
	return held(C.PIPE, 0, func() { check(C.call_read() == 1, "read of a pipe") })
}

func cgoFlock() (arm, call, end func()) {
	file, other := temporary()
	fd := C.int(file.Fd())
	arm, call, join := held(C.FILE_LOCK, int(other.Fd()), func() {
		check(C.call_flock(fd) == 1, "flock")
	})
	return arm, call, func() {
		join()
		file.Close()
		other.Close()
	}
}

func cgoMutex() (arm, call, end func()) {
	return held(C.MUTEX, 0, func() { C.call_mutex() })
}

func cgoFsync() (arm, call, end func()) {
	file, other := temporary()
	data := make([]byte, fsyncBytes)
	fd := C.int(file.Fd())
	return func() {
			for i := range data {
				data[i]++
			}
			n, err := file.WriteAt(data, 0)
			check(n == fsyncBytes, "write to a file: %v", err)
		}, func() { check(C.fsync(fd) == 0, "fsync") }, func() {
			file.Close()
			other.Close()
		}
}

func cgoLookup() (arm, call, end func()) {
	return nothing, func() { check(C.call_getaddrinfo() == 0, "getaddrinfo") }, nothing
}
