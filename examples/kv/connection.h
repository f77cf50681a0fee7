/* connection.h: one client, one green thread. */
#ifndef KV_CONNECTION_H
#define KV_CONNECTION_H
#include <weft/net.h>

struct server;

void connection_start(struct server *s, weft_conn conn); /* takes conn; from a G */
/* The server is stopping: nobody waits for long any more. */
void connection_hurry_all(struct server *s);
void connection_close_all(struct server *s); /* nobody waits at all */
#endif
