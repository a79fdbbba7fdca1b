// Files on different operating systems. Only this folder, and the RPC client, depend on the operating system.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

namespace eliza {

using File = std::unique_ptr<std::FILE, int (*)(std::FILE *)>;

// Opens a regular file for reading. Rejects anything on which a reader could wait or never reach the end, such as a
// FIFO or a device. On failure returns null and sets errno; errno is 0 if the path is not a regular file.
File open_regular_file(const std::string & path);

// Returns a string that changes when the file is written to or replaced: its inode, its size and its modification time.
// Empty if there is no such file.
std::string version_of_file(const std::string & path);

// Creates a file for writing. remove_unless_in_use() does not delete it until it is closed or this process ends. On
// failure returns null and sets errno.
File create_file_in_use(const std::filesystem::path & path);
void remove_unless_in_use(const std::filesystem::path & path);

// False if a file must be closed before it can be renamed.
bool can_rename_open_files();

// Flushes the file to disk. Returns true if that succeeded, or if the file is of a kind that cannot be flushed.
bool wait_until_on_disk(std::FILE * file);

// Like fseek from the beginning, for files of any size.
int seek(std::FILE * file, uint64_t position);

}  // namespace eliza
