/* api/use.c: uses every macro and inline function of the headers as a program would, in C99 as in
   C++20. Only compiled, but for main. */
#include <weft.h>

struct job {
    int number;
    const char *text;
};
WEFT_CHAN_TYPE(jobs, struct job);
WEFT_CHAN_TYPE(numbers, long);

int use_time(void);
int use_channels(void);
int use_options(void);
int use_tasks(void);
int use_sync(void);

int use_time(void) {
    weft_time t = weft_in(5 * WEFT_SECOND);
    weft_duration d =
        WEFT_HOUR + WEFT_MINUTE + WEFT_MILLISECOND + WEFT_MICROSECOND + WEFT_NANOSECOND;
    t = weft_time_add(t, d);
    t = weft_time_add(t, -WEFT_FOREVER);
    d = weft_time_sub(t, weft_time_at(7));
    if (weft_time_cmp(t, WEFT_NEVER) < 0) return weft_sleep_until(t);
    return weft_sleep(d);
}

int use_channels(void) {
    jobs j;
    numbers n;
    struct job in = {1, "one"}, out;
    long number;
    if (jobs_new(&j, 4) != 0 || numbers_new(&n, 0) != 0) return 1;
    if (jobs_send(j, in) != 0 || jobs_try_send(j, in) != 0) return 2;
    if (jobs_send_until(j, in, weft_in(WEFT_SECOND)) != 0) return 3;
    if (jobs_recv(j, &out) != 0 || jobs_try_recv(j, &out) != 0) return 4;
    if (jobs_recv_until(j, &out, WEFT_NEVER) != 0) return 5;
    if (numbers_recv(n, &number) != 0) return 6;
    jobs_unref(jobs_ref(j));
    return jobs_close(j) + (int)jobs_len(j);
}

int use_options(void) {
    weft_config c = weft_config_default();
    weft_timer_options t = weft_timer_options_default();
    weft_listen_options l = weft_listen_options_default();
    weft_dial_options d = weft_dial_options_default();
    weft_addr a = WEFT_ZERO;
    c.flags = WEFT_IGNORE_ENV | WEFT_CATCH_OVERFLOW;
    t.slack = -1;
    l.reuse_port = true;
    d.local = &a;
    return WEFT_MUST((int)(c.size + t.size + l.size + d.size));
}

static int body(void *arg) {
    struct job *j = (struct job *)arg;
    return j->number;
}

static void done(void *arg) { ((struct job *)arg)->number = 0; }

static weft_local current_job = WEFT_LOCAL_INIT(done);

int use_tasks(void) {
    static struct job j = {1, "one"};
    weft_deferred d;
    weft_defer(&d, done, &j);
    weft_defer_run(&d);
#ifdef WEFT_DEFER
    WEFT_DEFER(done, &j);
    WEFT_DEFER(done, weft_local_get(&current_job));
#endif
    if (weft_local_set(&current_job, &j) != 0) return -2;
    if (WEFT_GO_COPY(body, &j) != 0) return -1;
    weft_set_name("job %d of %s", j.number, j.text);
    return weft_go(body, &j);
}

static weft_mutex mutex = WEFT_MUTEX_INIT;
static weft_waitgroup group = WEFT_WAITGROUP_INIT;
static weft_event event = WEFT_EVENT_INIT;

int use_sync(void) {
#ifdef WEFT_LOCK_GUARD
    WEFT_LOCK_GUARD(&mutex);
    {
        static weft_mutex inner = WEFT_MUTEX_INIT;
        WEFT_LOCK_GUARD(&inner);
    }
#else
    weft_mutex_lock(&mutex);
#endif
    weft_waitgroup_wait(&group);
    weft_event_set(&event);
    return weft_event_is_set(&event) ? WEFT_EOF : WEFT_EPEERDEAD;
}

int main(void) {
    static const int codes[] = {WEFT_EOF, WEFT_ENORUNTIME, WEFT_ESTOPPING};
    const char *v = weft_version();
    size_t i;
    for (i = 0; i < WEFT_COUNT(codes); i++) {
        if (weft_strerror(codes[i])[0] == 0) return 1;
    }
    return v[0] == '0' + WEFT_VERSION_MAJOR ? 0 : 1;
}
