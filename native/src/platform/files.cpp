#include "platform/files.h"

#include <cerrno>

#if defined(__unix__) || defined(__APPLE__)
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#endif

namespace eliza {

#if defined(__unix__) || defined(__APPLE__)

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
        std::error_code error;
        std::filesystem::remove(path, error);
    }
    return file;
}

void remove_unless_in_use(const std::filesystem::path & path) {
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (descriptor >= 0) {
        if (::flock(descriptor, LOCK_EX | LOCK_NB) == 0) {
            std::error_code error;
            std::filesystem::remove(path, error);
        }
        ::close(descriptor);
    }
}

bool can_rename_open_files() { return true; }

bool wait_until_on_disk(std::FILE * file) {
    return ::fsync(::fileno(file)) == 0 || errno == EINVAL || errno == ENOTSUP;
}

int seek(std::FILE * file, uint64_t position) { return fseeko(file, static_cast<off_t>(position), SEEK_SET); }

#else

File open_regular_file(const std::string & path) {
    errno = 0;
    std::error_code error;
    const bool is_other = std::filesystem::exists(path, error) && !std::filesystem::is_regular_file(path, error);
    return {is_other ? nullptr : std::fopen(path.c_str(), "rb"), std::fclose};
}

std::string version_of_file(const std::string & path) {
    std::error_code error;
    const auto size = std::filesystem::file_size(path, error);
    if (error) {
        return "";
    }
    const auto changed = std::filesystem::last_write_time(path, error).time_since_epoch().count();
    return std::to_string(size) + ":" + std::to_string(changed);
}

File create_file_in_use(const std::filesystem::path & path) {
    return {std::fopen(path.string().c_str(), "wbx"), std::fclose};
}

void remove_unless_in_use(const std::filesystem::path & path) {
    std::error_code error;  // Windows does not delete an open file.
    std::filesystem::remove(path, error);
}

bool can_rename_open_files() { return false; }

bool wait_until_on_disk(std::FILE *) { return true; }

int seek(std::FILE * file, uint64_t position) { return _fseeki64(file, static_cast<long long>(position), SEEK_SET); }

#endif

}  // namespace eliza
