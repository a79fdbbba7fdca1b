// A request of ggml's RPC client: computes the size of its answer, and makes up an answer if the server is lost.
#pragma once

#include <cstdint>
#include <cstring>

#include "ggml-rpc.h"

// The commands, sizes and offsets below are valid for this version of the protocol.
static_assert(RPC_PROTO_MAJOR_VERSION == 8, "the RPC protocol has changed: review the answers below");

namespace eliza {

class RpcRequest {
public:
    // Processes the request in parts: a byte with the command, the size of the rest, and the rest.
    void add(const void * data, size_t size) {
        if (part_ == 0) {
            command_ = *static_cast<const uint8_t *>(data);
        } else if (part_ == 2) {
            std::memset(last_, 0, sizeof(last_));
            if (size >= sizeof(last_)) {
                std::memcpy(last_, static_cast<const char *>(data) + size - sizeof(last_), sizeof(last_));
            } else if (size >= sizeof(uint64_t)) {
                std::memcpy(last_ + 2, static_cast<const char *>(data) + size - sizeof(uint64_t), sizeof(uint64_t));
            }
        }
        ++part_;
    }
    void end() { part_ = 0; }

    bool is_hello() const { return command_ == hello; }

    // Only for requests that have an answer.
    uint64_t answer_size() const {
        switch (command_) {
            case alloc_buffer:
            case get_device_memory: return 16;
            case get_tensor:
                return last_[2];  // the tensor's size
            // The size of a row and the number of rows; a stride follows.
            case get_tensor_2d: return last_[0] * last_[1];
            case set_tensor_hash:
            case copy_tensor:
            case comm_init: return 1;
            case hello: return hello_answer_size;
            case device_count: return 4;
            default: return 8;
        }
    }

    // Makes up an answer that lets the client continue: every allocation succeeds, every value is zero.
    void make_up(void * answer, size_t size) const {
        std::memset(answer, 0, size);
        const auto write = [&](uint64_t value, size_t at) {
            std::memcpy(static_cast<char *>(answer) + at, &value, sizeof(value));
        };
        switch (command_) {
            case alloc_buffer:
                write(1, 0);
                write(last_[2], 8);
                break;
            case get_alignment: write(128, 0); break;
            case get_max_size: write(UINT64_MAX, 0); break;
            case buffer_get_base: write(uint64_t(1) << 20, 0); break;
            case hello: static_cast<char *>(answer)[0] = RPC_PROTO_MAJOR_VERSION; break;
            default: break;
        }
    }

    static constexpr uint64_t hello_answer_size = 28;  // three numbers, padding, the capabilities of the connection

private:
    enum Command : uint8_t {  // the protocol's numbers
        alloc_buffer = 0,
        get_alignment = 1,
        get_max_size = 2,
        buffer_get_base = 3,
        set_tensor_hash = 7,
        get_tensor = 8,
        copy_tensor = 9,
        get_device_memory = 11,
        hello = 14,
        device_count = 15,
        get_tensor_2d = 19,
        comm_init = 20,
    };
    int part_ = 0;
    uint8_t command_ = 0;
    uint64_t last_[3] = {};  // the last three 64-bit numbers of the rest
};

}  // namespace eliza
