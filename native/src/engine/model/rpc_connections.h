// Connections to servers of llama.cpp's RPC backend that may break without ending the process.
//
// ggml's RPC client aborts the process when a connection breaks. It reaches the network through one
// class, socket_t, which rpc_connections.cpp defines in place of ggml's own: a connection that breaks is
// noted here, and from then on answers every request by itself, with what lets the client go on. What
// is computed with it is worthless, so whoever runs a pass asks here before the result is used.
#pragma once

#include <string>
#include <vector>

namespace eliza {

using Endpoints = std::vector<std::string>;  // "host:port"

// Throws Error (ELIZA_ERR_FFI_FAULT) that names the first of the servers whose connection is broken.
void check_rpc_connections(const Endpoints & endpoints);

// A server that could not be reached may be asked again; one that was lost in the midst of its work may
// not: the client remembers what it answered. Throws Error for such a one.
void forget_failed_attempt(const std::string & endpoint);

}  // namespace eliza
