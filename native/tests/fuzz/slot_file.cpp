#include "engine/cache/slot_file.h"

#include "temporary_file.h"

// Appends the correct hash, because otherwise no input would get past the check of the hash.
void eliza::fuzz::run(std::string_view input) {
    std::string bytes(input);
    uint64_t hash = 0xcbf29ce484222325u;
    for (const char byte : bytes) hash = (hash ^ static_cast<uint8_t>(byte)) * 0x100000001b3u;
    bytes.append(reinterpret_cast<const char *>(&hash), sizeof hash);
    const SlotFile file = read_slot_file(write_input(bytes), "fingerprint", {1 << 16, 1 << 20});
    require(file.fingerprint == "fingerprint");
    require(file.tokens.size() * sizeof(llama_token) + file.state.size() < bytes.size());
}
