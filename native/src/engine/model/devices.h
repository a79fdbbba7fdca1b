// Which devices a model is put on: those of this machine, and those that RPC servers offer.
#pragma once

#include <string>
#include <tuple>
#include <vector>

#include "engine/model/rpc_connections.h"
#include "ggml-backend.h"

namespace eliza {

struct DeviceChoice {
    Endpoints rpc;                   // in the order in which they get layers
    std::vector<std::string> local;  // names; empty: all that are worth it
    bool local_is_chosen = false;    // with no names: none, the CPU alone

    bool is_default() const { return rpc.empty() && !local_is_chosen; }
    friend bool operator<(const DeviceChoice & a, const DeviceChoice & b) {
        return std::tie(a.rpc, a.local, a.local_is_chosen) < std::tie(b.rpc, b.local, b.local_is_chosen);
    }
};

// Reads "host:port,..."; empty: none. Throws Error where one is malformed or the library has no RPC.
Endpoints parse_rpc_servers(const std::string & list);

// Reads "auto", "none" or names joined by commas into what is local. Throws Error that names an unknown one.
void parse_devices(const std::string & list, DeviceChoice & choice);

// The devices in the order in which they get layers; connects to the servers, which stay known to the
// process. Throws Error where one cannot be used.
std::vector<ggml_backend_dev_t> open_devices(const DeviceChoice & choice);

}  // namespace eliza
