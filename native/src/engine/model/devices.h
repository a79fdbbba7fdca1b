// The devices on which a model is placed, on this machine and on RPC servers.
#pragma once

#include <string>
#include <tuple>
#include <vector>

#include "engine/model/rpc_connections.h"
#include "ggml-backend.h"

namespace eliza {

struct DeviceChoice {
    Endpoints rpc;                   // in the order in which they get layers
    std::vector<std::string> local;  // names; if empty, all that are worth using
    bool local_is_chosen = false;    // if true, and `local` is empty: the CPU only

    bool is_default() const { return rpc.empty() && !local_is_chosen; }
    friend bool operator<(const DeviceChoice & a, const DeviceChoice & b) {
        return std::tie(a.rpc, a.local, a.local_is_chosen) < std::tie(b.rpc, b.local, b.local_is_chosen);
    }
};

// Parses "host:port,..."; "" means none. Throws an Error if an address is malformed or the library has no RPC.
Endpoints parse_rpc_servers(const std::string & list);

// Parses "auto", "none" or names joined by commas into the local devices. Throws an Error that names an unknown device.
void parse_devices(const std::string & list, DeviceChoice & choice);

// Returns the devices in the order in which they get layers. Connects to the servers, which stay registered as long as
// the process lives. Throws an Error if a server cannot be used.
std::vector<ggml_backend_dev_t> open_devices(const DeviceChoice & choice);

}  // namespace eliza
