// Files on different operating systems. Only this folder, and the RPC client, depend on the operating system.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

namespace eliza {

// Returns the path for a UTF-8 text. Use it instead of the constructor of std::filesystem::path, which on Windows may
// expect another encoding. On Windows, a long path gets the prefix without which the system rejects it.
std::filesystem::path path_of(const std::string & text);

using File = std::unique_ptr<std::FILE, int (*)(std::FILE *)>;

enum class FileKind { none, regular, folder, other };

// Unlike the functions of std::filesystem, this and the functions below support long paths on Windows.
FileKind kind_of(const std::filesystem::path & path);

// Returns the paths of the files and folders in a folder, in no particular order. Throws
// std::filesystem::filesystem_error if the folder cannot be read.
std::vector<std::filesystem::path> entries_of(const std::filesystem::path & folder);

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

// Deletes a file, if that is possible.
void remove_file(const std::filesystem::path & path);

// Renames a file from create_file_in_use(), which stays in use. Replaces a file at the new path. On Windows, this fails
// if another program has opened that file.
void rename_file_in_use(std::FILE * file, const std::filesystem::path & path, const std::filesystem::path & new_path,
                        std::error_code & error);

// Flushes the file to disk. Returns true if that succeeded, or if the file is of a kind that cannot be flushed.
bool wait_until_on_disk(std::FILE * file);

// Returns the size of an open file in bytes; nothing on failure, which sets errno.
std::optional<uint64_t> size_of(std::FILE * file);

// Like fseek from the beginning, for files of any size.
int seek(std::FILE * file, uint64_t position);

}  // namespace eliza
