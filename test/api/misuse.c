/* api/misuse.c: what the compiler must refuse. MISUSE chooses one case; 0 is the program without any,
   which must compile, so that each of the others fails for its own line. run.sh counts the lines
   that begin a case. */
#include <weft.h>

struct job {
    int number;
};
struct other {
    double number;
};
WEFT_CHAN_TYPE(jobs, struct job);
WEFT_CHAN_TYPE(others, struct other);

int misuse(jobs j, others k, weft_chan *c, weft_conn conn, weft_listener l, weft_time t);
int body(void *arg);
void body_without_result(void *arg);

int misuse(jobs j, others k, weft_chan *c, weft_conn conn, weft_listener l, weft_time t) {
    struct job job = {1};
    struct other other = {1};
    weft_conn accepted;
    (void)other, (void)k;
    if (jobs_send(j, job) || jobs_recv_until(j, &job, t) || weft_chan_recv_until(c, &job, t))
        return 1;
    if (weft_accept(&accepted, l) || weft_go(body, &job)) return 2;
    weft_set_name("%d", job.number);
    weft_conn_close(conn);
#if MISUSE == 1 /* a length where a time is wanted */
    return weft_sleep_until(5 * WEFT_SECOND);
#elif MISUSE == 2
    return weft_chan_recv_until(c, &job, 5 * WEFT_SECOND);
#elif MISUSE == 3
    return jobs_send_until(j, job, WEFT_SECOND);
#elif MISUSE == 4
    return weft_conn_set_deadline(conn, WEFT_FOREVER);
#elif MISUSE == 5 /* a time where a length is wanted */
    return weft_sleep(weft_now());
#elif MISUSE == 6 /* addition that does not saturate */
    return weft_sleep_until(weft_now() + WEFT_SECOND);
#elif MISUSE == 7 /* times compared as numbers */
    return weft_now() < t;
#elif MISUSE == 8 /* the wrong type into a typed channel */
    return jobs_send(j, other);
#elif MISUSE == 9
    return jobs_send(j, 5);
#elif MISUSE == 10 /* and out of one */
    return jobs_recv(j, &other);
#elif MISUSE == 11 /* the wrong channel */
    return jobs_send(k, job);
#elif MISUSE == 12
    return jobs_send(c, job);
#elif MISUSE == 13 /* a pointer where the value is wanted */
    return jobs_send(j, &job);
#elif MISUSE == 14 /* results that must not be dropped */
    weft_go(body, &job);
#elif MISUSE == 15
    weft_chan_send(c, &job);
#elif MISUSE == 16
    jobs_send(j, job);
#elif MISUSE == 17
    weft_conn_write(conn, &job, sizeof job);
#elif MISUSE == 18 /* a connection is neither a listener nor a descriptor */
    return weft_accept(&accepted, conn);
#elif MISUSE == 19
    return weft_conn_close(3);
#elif MISUSE == 20
    return weft_conn_close(l);
#elif MISUSE == 21 /* a green thread's function returns a result */
    return weft_go(body_without_result, &job);
#elif MISUSE == 22 /* formats are checked */
    weft_set_name("%s", job.number);
#elif MISUSE == 23 /* WEFT_CHAN_TYPE needs its semicolon */
}
WEFT_CHAN_TYPE(thirds, int)
int after(void) {
#elif MISUSE == 24 /* a pointer to a time is not a time */
    return weft_chan_recv_until(c, &job, &t);
#elif MISUSE != 0
#error "no such case"
#endif
    return 0;
}
