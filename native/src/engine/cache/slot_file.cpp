#include "engine/cache/slot_file.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "error.h"
#include "fnv1a.h"
#include "platform/files.h"

namespace eliza {
namespace {

constexpr char magic[] = {'E', 'L', 'I', 'Z', 'A', 'S', 'L', 'T'};
constexpr uint32_t version = 1;

Error fault(const std::string & path, const std::string & what) {
    return {ELIZA_ERR_FFI_FAULT, "slot file " + path + ": " + what};
}
Error system_fault(const std::string & path, const char * doing) {
    return fault(path, std::string(doing) + ": " + std::strerror(errno));
}

// A temporary file next to the target, which only this process writes. If the process is killed, the file remains
// without a lock, and the next writer to the same path removes it.
class TemporaryFile {
public:
    explicit TemporaryFile(const std::string & path) : file_(nullptr, std::fclose) {
        const std::filesystem::path target = path_of(path);
        const std::string begin = target.filename().string() + ".";
        remove_abandoned(target.parent_path(), begin);
        static std::atomic<uint64_t> counter{0};
        for (int attempt = 0; file_ == nullptr && attempt < 10; ++attempt) {
            const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
            path_ = target.parent_path() / (begin + std::to_string(now) + "-" + std::to_string(++counter) + ending);
            file_ = create_file_in_use(path_);
        }
        if (file_ == nullptr) {
            throw system_fault(path, "cannot be written");
        }
    }
    ~TemporaryFile() {
        if (!path_.empty()) {
            file_.reset();
            remove_file(path_);
        }
    }
    TemporaryFile(const TemporaryFile &) = delete;
    TemporaryFile & operator=(const TemporaryFile &) = delete;

    std::FILE * get() const { return file_.get(); }

    void rename_to(const std::filesystem::path & target, std::error_code & error) {
        // Keep the file in use until it is renamed. Otherwise another process could take it for abandoned.
        rename_file_in_use(file_.get(), path_, target, error);
        if (!error) {
            path_.clear();
        }
    }

private:
    static constexpr const char * ending = ".part";

    static void remove_abandoned(const std::filesystem::path & folder, const std::string & begin) {
        std::vector<std::filesystem::path> found;
        try {
            found = entries_of(folder.empty() ? "." : folder);
        } catch (const std::filesystem::filesystem_error &) {
            return;  // Creating the file will fail too, and report the reason.
        }
        for (const std::filesystem::path & path : found) {
            const std::string name = path.filename().string();
            if (name.compare(0, begin.size(), begin) != 0) {
                continue;
            }
            const size_t end = name.find_first_not_of("0123456789-", begin.size());
            if (end != std::string::npos && end > begin.size() && name.substr(end) == ending) {
                remove_unless_in_use(path);
            }
        }
    }

    File file_;
    std::filesystem::path path_;  // empty: it has another name now
};

// Writes to a temporary file, and renames it when all data is on disk.
class Writer {
public:
    explicit Writer(const std::string & path) : path_(path), target_(path_of(path)), file_(checked(path)) {}

    void write(const void * data, size_t size) {
        hash_.add(data, size);
        write_raw(data, size);
    }
    void write_part(const void * data, size_t size) {
        const uint64_t length = size;
        write(&length, sizeof length);
        write(data, size);
    }
    void finish() {
        const uint64_t hash = hash_.value();
        write_raw(&hash, sizeof hash);
        if (std::fflush(file_.get()) != 0) {
            throw system_fault(path_, "cannot be written");
        }
        if (!wait_until_on_disk(file_.get())) {
            throw system_fault(path_, "cannot be written");
        }
        std::error_code error;
        file_.rename_to(target_, error);
        if (error) {
            throw fault(path_, "the temporary file cannot be renamed to this path: " + error.message());
        }
    }

private:
    void write_raw(const void * data, size_t size) {
        if (std::fwrite(data, 1, size, file_.get()) != size) {
            throw system_fault(path_, "cannot be written");
        }
    }

    static const std::string & checked(const std::string & path) {
        const FileKind kind = kind_of(path_of(path));
        if (kind != FileKind::none && kind != FileKind::regular) {
            throw fault(path, "cannot be written: the path exists and is not a regular file");
        }
        return path;
    }

    const std::string path_;
    const std::filesystem::path target_;
    TemporaryFile file_;
    Fnv1a hash_;
};

// Reads a file part by part, so that a file with a wrong beginning is never read into memory completely.
class Reader {
public:
    explicit Reader(const std::string & path) : path_(path), file_(open_regular_file(path)) {
        if (file_ == nullptr) {
            throw errno == 0 ? fault(path, "cannot be read: not a regular file") : system_fault(path, "cannot be read");
        }
        const std::optional<uint64_t> size = size_of(file_.get());
        if (!size) {
            throw system_fault(path, "cannot be read");
        }
        size_ = *size;
    }

    bool begins_with_magic() {
        char begin[sizeof magic] = {};
        read(begin, std::min<uint64_t>(sizeof begin, size_));
        return std::memcmp(begin, magic, sizeof magic) == 0;
    }
    template <typename T>
    T number() {
        T value{};
        read(&value, sizeof value);
        return value;
    }
    // Reads a part of at most `most` items of item_bytes bytes.
    std::vector<uint8_t> part(uint64_t most, size_t item_bytes, const char * items) {
        const auto length = number<uint64_t>();
        if (length > size_ - at_) {
            throw damaged();
        }
        if (length / item_bytes > most) {
            throw ContextFull("slot file " + path_ + " contains " + std::to_string(length / item_bytes) + " " + items +
                              ", the context has room for " + std::to_string(most) + " (option n_ctx)");
        }
        std::vector<uint8_t> data(length);
        read(data.data(), data.size());
        return data;
    }

    // Compares the hash of everything read so far with the stored one, which must be the end of the file.
    bool ends_with_hash() {
        const uint64_t expected = hash_.value();
        return number<uint64_t>() == expected && at_ == size_;
    }

    Error damaged() const { return fault(path_, "truncated or damaged"); }

private:
    void read(void * out, size_t size) {
        if (size > size_ - at_) {
            throw damaged();
        }
        if (std::fread(out, 1, size, file_.get()) != size) {
            throw system_fault(path_, "cannot be read");
        }
        hash_.add(out, size);
        at_ += size;
    }

    const std::string & path_;
    const File file_;
    uint64_t size_ = 0;
    uint64_t at_ = 0;
    Fnv1a hash_;
};

}  // namespace

void write_slot_file(const std::string & path, const SlotFile & file) {
    Writer writer(path);
    writer.write(magic, sizeof magic);
    writer.write(&version, sizeof version);
    writer.write_part(file.fingerprint.data(), file.fingerprint.size());
    writer.write_part(file.tokens.data(), file.tokens.size() * sizeof(llama_token));
    writer.write_part(file.state.data(), file.state.size());
    writer.finish();
}

SlotFile read_slot_file(const std::string & path, const std::string & fingerprint, SlotFileLimits limits) {
    constexpr uint64_t max_fingerprint = 1 << 16;
    Reader reader(path);
    if (!reader.begins_with_magic()) {
        throw fault(path, "not a slot file");
    }
    if (const auto found = reader.number<uint32_t>(); found != version) {
        throw fault(path,
                    "expected version " + std::to_string(version) + " of the format, got " + std::to_string(found));
    }
    SlotFile file;
    const std::vector<uint8_t> name = reader.part(max_fingerprint, 1, "bytes of a fingerprint");
    file.fingerprint.assign(name.begin(), name.end());
    if (file.fingerprint != fingerprint) {
        throw fault(path, "saved with another model or cache: expected \"" + fingerprint + "\", got \"" +
                              file.fingerprint + "\"");
    }
    const std::vector<uint8_t> tokens = reader.part(limits.n_tokens, sizeof(llama_token), "tokens");
    if (tokens.size() % sizeof(llama_token) != 0) {
        throw reader.damaged();
    }
    file.tokens.resize(tokens.size() / sizeof(llama_token));
    std::copy(tokens.begin(), tokens.end(), reinterpret_cast<uint8_t *>(file.tokens.data()));
    file.state = reader.part(limits.state_bytes, 1, "bytes of state");
    if (!reader.ends_with_hash()) {
        throw reader.damaged();
    }
    return file;
}

}  // namespace eliza
