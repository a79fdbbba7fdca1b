#include "engine/model/devices.h"

#include <algorithm>

#include "error.h"
#include "log.h"
#include "parse_value.h"

namespace eliza {
namespace {

std::vector<std::string> split(const std::string & list) {
    std::vector<std::string> parts;
    for (size_t begin = 0; begin <= list.size();) {
        const size_t end = std::min(list.find(',', begin), list.size());
        parts.push_back(list.substr(begin, end - begin));
        begin = end + 1;
    }
    return parts;
}

bool is_endpoint(const std::string & text) {
    const size_t colon = text.find(':');
    int port = 0;
    return colon != std::string::npos && colon > 0 && parse_number(text.substr(colon + 1), 1, 65535, port);
}

// Returns the devices worth offloading to, as llama.cpp chooses them: all GPUs, or else an integrated one.
std::vector<ggml_backend_dev_t> usual_devices() {
    for (const auto type : {GGML_BACKEND_DEVICE_TYPE_GPU, GGML_BACKEND_DEVICE_TYPE_IGPU}) {
        std::vector<ggml_backend_dev_t> found;
        for (size_t i = 0; i < ggml_backend_dev_count(); ++i) {
            if (ggml_backend_dev_type(ggml_backend_dev_get(i)) == type) {
                found.push_back(ggml_backend_dev_get(i));
            }
        }
        if (!found.empty()) {
            return found;
        }
    }
    return {};
}

using AddServer = ggml_backend_reg_t (*)(const char * endpoint);

AddServer rpc_add_server() {
    const ggml_backend_reg_t rpc = ggml_backend_reg_by_name("RPC");
    return rpc == nullptr
               ? nullptr
               : reinterpret_cast<AddServer>(ggml_backend_reg_get_proc_address(rpc, "ggml_backend_rpc_add_server"));
}

}  // namespace

Endpoints parse_rpc_servers(const std::string & list) {
    if (list.empty()) {
        return {};
    }
    init_backend();
    if (rpc_add_server() == nullptr) {
        throw Error(ELIZA_ERR_NOT_IMPLEMENTED,
                    "option rpc: this library was built without RPC; 'make rpc' builds it with RPC");
    }
    Endpoints endpoints = split(list);
    for (const std::string & endpoint : endpoints) {
        if (!is_endpoint(endpoint)) {
            throw invalid_argument("option rpc: expected host:port, as in 10.0.0.2:50052, got \"" + endpoint + "\"");
        }
    }
    return endpoints;
}

void parse_devices(const std::string & list, DeviceChoice & choice) {
    if (list == "auto" || list == "none") {
        choice.local.clear();
        choice.local_is_chosen = list == "none";
        return;
    }
    init_backend();
    std::vector<std::string> names = split(list);
    for (const std::string & name : names) {
        if (ggml_backend_dev_by_name(name.c_str()) == nullptr) {
            std::string known;
            for (size_t i = 0; i < ggml_backend_dev_count(); ++i) {
                known += ", " + std::string(ggml_backend_dev_name(ggml_backend_dev_get(i)));
            }
            throw invalid_argument("option device: unknown device \"" + name + "\"; known devices: auto, none" + known);
        }
    }
    choice.local = std::move(names);
    choice.local_is_chosen = true;
}

std::vector<ggml_backend_dev_t> open_devices(const DeviceChoice & choice) {
    std::vector<ggml_backend_dev_t> devices;
    for (const std::string & endpoint : choice.rpc) {
        forget_failed_attempt(endpoint);
        const ggml_backend_reg_t server = rpc_add_server()(endpoint.c_str());
        check_rpc_connections({endpoint});
        if (server == nullptr) {
            throw Error(ELIZA_ERR_FFI_FAULT, "RPC server " + endpoint + ": it has no devices");
        }
        for (size_t i = 0; i < ggml_backend_reg_dev_count(server); ++i) {
            devices.push_back(ggml_backend_reg_dev_get(server, i));
        }
    }
    if (!choice.local_is_chosen) {
        const std::vector<ggml_backend_dev_t> local = usual_devices();
        devices.insert(devices.end(), local.begin(), local.end());
    }
    for (const std::string & name : choice.local) {
        devices.push_back(ggml_backend_dev_by_name(name.c_str()));
    }
    return devices;
}

}  // namespace eliza
