// Buffers of llama.cpp in main memory that take no memory until they are used.
#pragma once

namespace eliza {

// Changes how llama.cpp sets its buffers in main memory to zero: it no longer writes to them, but gives their pages
// back to the operating system, which provides zeroed pages when they are used. A KV cache then takes memory and time
// only for the cells that are used. Does nothing on systems other than Linux.
void clear_buffers_lazily();

}  // namespace eliza
