// A conversation on disk: its tokens and what the KV cache holds for them.
//
// Little-endian: the magic "ELIZASLT", u32 version, then three parts, each a u64 length and so many bytes
// (the fingerprint, the tokens as i32, llama.cpp's state of the sequence), and at the end
// the FNV-1a hash of all before it as u64.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "llama.h"

namespace eliza {

struct SlotFile {
    std::string fingerprint;  // of the model and of how its cache is stored
    std::vector<llama_token> tokens;
    std::vector<uint8_t> state;
};

// Writes the whole file or leaves what was there. Throws Error with the path and the system's reason.
void write_slot_file(const std::string & path, const SlotFile & file);

// What a file may hold. Nothing larger is read into memory.
struct SlotFileLimits {
    uint64_t n_tokens;
    uint64_t state_bytes;
};

// Throws Error that says what is wrong: no such file, not a slot file, of another model (its fingerprint is not
// `fingerprint`), too large, cut short, or damaged.
SlotFile read_slot_file(const std::string & path, const std::string & fingerprint, SlotFileLimits limits);

}  // namespace eliza
