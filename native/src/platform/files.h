// Files, as each system has them. Which system this is, is asked in this folder alone, and by the RPC client.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

namespace eliza {

using File = std::unique_ptr<std::FILE, int (*)(std::FILE *)>;

// Opens a file to read, and nothing that could make a reader wait or never end, such as a FIFO or a device. Null: errno
// says why; 0 is for what is no regular file.
File open_regular_file(const std::string & path);

// What changes when a file is written to or replaced: its place on the disk, its size and when it was changed. Empty if
// there is no such file.
std::string version_of_file(const std::string & path);

// Creates a file that is to be written to, and that remove_unless_in_use() leaves alone until it is closed or this
// process ends. Null: errno says why.
File create_file_in_use(const std::filesystem::path & path);
void remove_unless_in_use(const std::filesystem::path & path);

// False where a file must be closed before it gets another name.
bool can_rename_open_files();

// What was written is on disk when this returns true. Where a file is none that could be, it is nothing to wait for.
bool wait_until_on_disk(std::FILE * file);

// As fseek from the beginning, in files of any size.
int seek(std::FILE * file, uint64_t position);

}  // namespace eliza
