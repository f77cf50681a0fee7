/* weft.h: all that most programs need. Each part stands alone. */
#ifndef WEFT_H
#define WEFT_H
#include <weft/base.h>
#include <weft/runtime.h>
#include <weft/task.h>
#include <weft/time.h>
#include <weft/chan.h>
#include <weft/sync.h>
#include <weft/net.h>
#include <weft/inspect.h>
#endif
