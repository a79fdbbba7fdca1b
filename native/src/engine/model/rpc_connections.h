// Connections to servers of llama.cpp's RPC backend. When such a connection breaks, the process continues.
//
// ggml's RPC client aborts the process when a connection breaks. It uses the network through one class, socket_t, which
// rpc_connections.cpp defines in place of ggml's own. Our socket_t records when its connection breaks, and from then
// on makes up the answers that let the client continue. The results are worthless, so the thread that runs a pass must
// call check_rpc_connections() before it uses them.
#pragma once

#include <string>
#include <vector>

namespace eliza {

using Endpoints = std::vector<std::string>;  // "host:port"

// Throws an Error (ELIZA_ERR_FFI_FAULT) that names the first server whose connection is broken.
void check_rpc_connections(const Endpoints & endpoints);

// Allows another attempt to reach a server that could not be reached. Throws an Error for a server that was lost after
// it had answered, because the client caches its answers.
void forget_failed_attempt(const std::string & endpoint);

}  // namespace eliza
