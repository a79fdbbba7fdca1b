#include "platform/files.h"

#include <cerrno>

#if defined(__unix__) || defined(__APPLE__)
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#elif defined(_WIN32)
#define WIN32_LEAN_AND_MEAN
#ifndef NOMINMAX
#define NOMINMAX
#endif
#include <fcntl.h>
#include <io.h>
#include <windows.h>

#include <cstring>
#endif

namespace eliza {

#if defined(__unix__) || defined(__APPLE__)

std::filesystem::path path_of(const std::string & text) { return text; }

FileKind kind_of(const std::filesystem::path & path) {
    std::error_code error;
    const std::filesystem::file_status status = std::filesystem::status(path, error);
    return !std::filesystem::exists(status)           ? FileKind::none
           : std::filesystem::is_directory(status)    ? FileKind::folder
           : std::filesystem::is_regular_file(status) ? FileKind::regular
                                                      : FileKind::other;
}

std::vector<std::filesystem::path> entries_of(const std::filesystem::path & folder) {
    std::vector<std::filesystem::path> entries;
    for (const auto & entry : std::filesystem::directory_iterator(folder)) {
        entries.push_back(entry.path());
    }
    return entries;
}

File open_regular_file(const std::string & path) {
    File file(nullptr, std::fclose);
    // Without O_NONBLOCK, opening a FIFO waits for a writer. The type is checked after opening, on the descriptor, so
    // that the file cannot be replaced in between.
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (descriptor < 0) {
        return file;
    }
    struct stat status {};
    if (::fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) {
        ::close(descriptor);
        errno = 0;
        return file;
    }
    file.reset(::fdopen(descriptor, "rb"));
    if (file == nullptr) {
        ::close(descriptor);
    }
    return file;
}

std::string version_of_file(const std::string & path) {
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0) {
        return "";
    }
#if defined(__APPLE__)
    const timespec changed = status.st_mtimespec;
#else
    const timespec changed = status.st_mtim;
#endif
    return std::to_string(status.st_dev) + ":" + std::to_string(status.st_ino) + ":" + std::to_string(status.st_size) +
           ":" + std::to_string(changed.tv_sec) + "." + std::to_string(changed.tv_nsec);
}

// The file is locked. Between its creation and its locking, another process may take it for abandoned and delete it;
// then st_nlink is 0.
File create_file_in_use(const std::filesystem::path & path) {
    File file(nullptr, std::fclose);
    const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    struct stat is_there {};
    // Some file systems do not support locks. No file is deleted as abandoned there, so the file is still ours.
    const bool is_ours = descriptor >= 0 && (::flock(descriptor, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK);
    if (is_ours && ::fstat(descriptor, &is_there) == 0 && is_there.st_nlink > 0) {
        file.reset(::fdopen(descriptor, "wb"));
    }
    if (descriptor >= 0 && file == nullptr) {
        ::close(descriptor);
        remove_file(path);
    }
    return file;
}

void remove_unless_in_use(const std::filesystem::path & path) {
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (descriptor >= 0) {
        if (::flock(descriptor, LOCK_EX | LOCK_NB) == 0) {
            remove_file(path);
        }
        ::close(descriptor);
    }
}

void remove_file(const std::filesystem::path & path) {
    std::error_code error;
    std::filesystem::remove(path, error);
}

void rename_file_in_use(std::FILE *, const std::filesystem::path & path, const std::filesystem::path & new_path,
                        std::error_code & error) {
    std::filesystem::rename(path, new_path, error);
}

bool wait_until_on_disk(std::FILE * file) {
    return ::fsync(::fileno(file)) == 0 || errno == EINVAL || errno == ENOTSUP;
}

std::optional<uint64_t> size_of(std::FILE * file) {
    struct stat status {};
    if (::fstat(::fileno(file), &status) != 0) {
        return std::nullopt;
    }
    return static_cast<uint64_t>(status.st_size);
}

int seek(std::FILE * file, uint64_t position) { return fseeko(file, static_cast<off_t>(position), SEEK_SET); }

#elif defined(_WIN32)

namespace {

// Gives a handle to the C runtime, which closes it. Sets errno and returns null on failure.
File adopt(HANDLE handle, int flags, const char * mode) {
    const int descriptor = _open_osfhandle(reinterpret_cast<intptr_t>(handle), flags | _O_BINARY);
    if (descriptor < 0) {
        CloseHandle(handle);
        return {nullptr, std::fclose};
    }
    File file(_fdopen(descriptor, mode), std::fclose);
    if (file == nullptr) {
        _close(descriptor);
    }
    return file;
}

// Returns whether the path has the prefix of long paths, or names a server.
bool has_prefix(const std::filesystem::path & path) { return path.native().compare(0, 2, L"\\\\") == 0; }

std::filesystem::path absolute_path(const std::filesystem::path & path) {
    std::error_code error;
    const std::filesystem::path whole = has_prefix(path) ? path : std::filesystem::absolute(path, error);
    return error ? path : whole;
}

int errno_of_last_error() {
    const std::error_condition condition =
        std::error_code(static_cast<int>(GetLastError()), std::system_category()).default_error_condition();
    return condition.category() == std::generic_category() ? condition.value() : EIO;
}

}  // namespace

std::filesystem::path path_of(const std::string & text) {
    // Without a prefix, Windows rejects paths of 260 and more characters. Temporary files have longer names.
    constexpr size_t longest_without_prefix = 240;
    const std::filesystem::path path = std::filesystem::u8path(text), whole = absolute_path(path);
    if (has_prefix(whole) || whole.native().size() <= longest_without_prefix) {
        return path;
    }
    return L"\\\\?\\" + whole.lexically_normal().make_preferred().native();
}

FileKind kind_of(const std::filesystem::path & path) {
    const DWORD attributes = GetFileAttributesW(path.c_str());
    return attributes == INVALID_FILE_ATTRIBUTES          ? FileKind::none
           : (attributes & FILE_ATTRIBUTE_DIRECTORY) != 0 ? FileKind::folder
           : (attributes & FILE_ATTRIBUTE_DEVICE) != 0    ? FileKind::other
                                                          : FileKind::regular;
}

// mingw's functions for folders, which std::filesystem uses, reject long paths.
std::vector<std::filesystem::path> entries_of(const std::filesystem::path & folder) {
    WIN32_FIND_DATAW entry{};
    const HANDLE handle = FindFirstFileW((folder / L"*").c_str(), &entry);
    if (handle == INVALID_HANDLE_VALUE) {
        throw std::filesystem::filesystem_error(
            "cannot read the folder", folder,
            std::error_code(static_cast<int>(GetLastError()), std::system_category()));
    }
    const std::unique_ptr<void, decltype(&FindClose)> search(handle, FindClose);
    std::vector<std::filesystem::path> entries;
    do {
        const std::wstring name = entry.cFileName;
        if (name != L"." && name != L"..") {
            entries.push_back(folder / name);
        }
    } while (FindNextFileW(handle, &entry) != 0);
    return entries;
}

File open_regular_file(const std::string & path) {
    const HANDLE handle =
        CreateFileW(path_of(path).c_str(), GENERIC_READ, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE,
                    nullptr, OPEN_EXISTING, FILE_ATTRIBUTE_NORMAL, nullptr);
    if (handle == INVALID_HANDLE_VALUE) {
        const int reason = errno_of_last_error();
        errno = kind_of(path_of(path)) == FileKind::folder ? 0 : reason;
        return {nullptr, std::fclose};
    }
    if (GetFileType(handle) != FILE_TYPE_DISK) {
        CloseHandle(handle);
        errno = 0;
        return {nullptr, std::fclose};
    }
    return adopt(handle, _O_RDONLY, "rb");
}

std::string version_of_file(const std::string & path) {
    const HANDLE handle =
        CreateFileW(path_of(path).c_str(), FILE_READ_ATTRIBUTES, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE,
                    nullptr, OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS, nullptr);
    if (handle == INVALID_HANDLE_VALUE) {
        return "";
    }
    BY_HANDLE_FILE_INFORMATION status{};
    const bool is_known = GetFileInformationByHandle(handle, &status) != 0;
    CloseHandle(handle);
    if (!is_known) {
        return "";
    }
    std::string version;
    for (const DWORD part :
         {status.dwVolumeSerialNumber, status.nFileIndexHigh, status.nFileIndexLow, status.nFileSizeHigh,
          status.nFileSizeLow, status.ftLastWriteTime.dwHighDateTime, status.ftLastWriteTime.dwLowDateTime}) {
        version += std::to_string(part) + ":";
    }
    return version;
}

// Without FILE_SHARE_DELETE, nobody can delete or rename the file while it is open.
File create_file_in_use(const std::filesystem::path & path) {
    const HANDLE handle = CreateFileW(path.c_str(), GENERIC_WRITE | DELETE, FILE_SHARE_READ, nullptr, CREATE_NEW,
                                      FILE_ATTRIBUTE_NORMAL, nullptr);
    if (handle == INVALID_HANDLE_VALUE) {
        errno = errno_of_last_error();
        return {nullptr, std::fclose};
    }
    return adopt(handle, _O_WRONLY, "wb");
}

void remove_unless_in_use(const std::filesystem::path & path) { remove_file(path); }

void remove_file(const std::filesystem::path & path) { DeleteFileW(path.c_str()); }

// std::filesystem::rename would need the file to be closed. Another process could then delete it as abandoned.
void rename_file_in_use(std::FILE * file, const std::filesystem::path &, const std::filesystem::path & new_path,
                        std::error_code & error) {
    const std::wstring name = absolute_path(new_path).native();
    const size_t name_bytes = name.size() * sizeof(wchar_t);
    std::vector<uint8_t> bytes(sizeof(FILE_RENAME_INFO) + name_bytes);
    auto * info = reinterpret_cast<FILE_RENAME_INFO *>(bytes.data());
    info->ReplaceIfExists = TRUE;
    info->FileNameLength = static_cast<DWORD>(name_bytes);
    std::memcpy(info->FileName, name.data(), name_bytes);
    const auto handle = reinterpret_cast<HANDLE>(_get_osfhandle(_fileno(file)));
    error.clear();
    // Other threads that replace the same file, and virus scanners, open it for a moment.
    for (int attempt = 0;
         SetFileInformationByHandle(handle, FileRenameInfo, info, static_cast<DWORD>(bytes.size())) == 0; ++attempt) {
        const DWORD reason = GetLastError();
        if (attempt == 50 || (reason != ERROR_ACCESS_DENIED && reason != ERROR_SHARING_VIOLATION)) {
            error = {static_cast<int>(reason), std::system_category()};
            return;
        }
        Sleep(10);
    }
}

bool wait_until_on_disk(std::FILE * file) { return _commit(_fileno(file)) == 0; }

std::optional<uint64_t> size_of(std::FILE * file) {
    const int64_t size = _filelengthi64(_fileno(file));
    return size < 0 ? std::nullopt : std::optional<uint64_t>(static_cast<uint64_t>(size));
}

int seek(std::FILE * file, uint64_t position) { return _fseeki64(file, static_cast<long long>(position), SEEK_SET); }

#endif

}  // namespace eliza
