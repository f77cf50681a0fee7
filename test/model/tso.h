/* The memory of a machine that keeps stores back (x86-TSO). Each thread t has a queue of stores that it
   alone has made so far; the process `machine` carries them out, in order, when it likes. Define THREADS
   and WORDS, include this, and run machine(). */
#define CAP 4
byte mem[WORDS];
chan buf[THREADS] = [CAP] of { byte, byte };

#define STORE(t, v, x) buf[t] ! v, x
#define FENCE(t) empty(buf[t]) /* a full fence, and the first half of every locked instruction */

proctype machine() {
    byte v, x;
end:
    do
    :: atomic { nempty(buf[0]) -> buf[0] ? v, x; mem[v] = x }
#if THREADS > 1
    :: atomic { nempty(buf[1]) -> buf[1] ? v, x; mem[v] = x }
#endif
#if THREADS > 2
    :: atomic { nempty(buf[2]) -> buf[2] ? v, x; mem[v] = x }
#endif
#if THREADS > 3
    :: atomic { nempty(buf[3]) -> buf[3] ? v, x; mem[v] = x }
#endif
    od
}
