// Implements rpc_connections.h for a library without RPC, which has no connections.

#include "engine/model/rpc_connections.h"

namespace eliza {

void check_rpc_connections(const Endpoints &) {}
void forget_failed_attempt(const std::string &) {}

}  // namespace eliza
