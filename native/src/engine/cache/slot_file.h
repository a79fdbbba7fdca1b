// A conversation on disk: its tokens and their state in the KV cache.
//
// The format is little-endian: the magic "ELIZASLT", a u32 version, then three parts, each with a u64 length in bytes
// before it (the fingerprint, the tokens as i32, and llama.cpp's state of the sequence), and at the end the FNV-1a hash
// of everything before it as u64.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "llama.h"

namespace eliza {

struct SlotFile {
    std::string fingerprint;  // of the model and of its cache's format
    std::vector<llama_token> tokens;
    std::vector<uint8_t> state;
};

// Writes the whole file, or leaves an existing one unchanged. Throws an Error with the path and the system's reason.
void write_slot_file(const std::string & path, const SlotFile & file);

// Limits on the contents of a file. Larger parts are not read into memory.
struct SlotFileLimits {
    uint64_t n_tokens;
    uint64_t state_bytes;
};

// Reads a slot file. Throws an Error if the file does not exist, is not a slot file, was written for another model (its
// fingerprint is not `fingerprint`), or is too large, truncated or damaged.
SlotFile read_slot_file(const std::string & path, const std::string & fingerprint, SlotFileLimits limits);

}  // namespace eliza
