// What rpc_connections.h declares in a library without RPC: no connection is ever made.

#include "engine/model/rpc_connections.h"

namespace eliza {

void check_rpc_connections(const Endpoints &) {}
void forget_failed_attempt(const std::string &) {}

}  // namespace eliza
