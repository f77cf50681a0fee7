#include <weft/base.h>

WEFT_API const char *weft_version(void) { return "0.1.0"; }
