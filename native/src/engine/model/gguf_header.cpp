#include "engine/model/gguf_header.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "platform/files.h"

namespace eliza {
namespace {

// Far beyond any existing model: the largest vocabularies have 0.3 M tokens, and a header of 16 MiB.
constexpr uint64_t max_header_bytes = uint64_t{1} << 29;
constexpr uint64_t max_items = uint64_t{1} << 24;  // of one array
constexpr uint64_t max_keys = 65'536;
constexpr uint64_t max_tensors = 65'536;
constexpr uint64_t first_bytes = uint64_t{1} << 16;

Error file_error(const std::string & path, const std::string & text) {
    return {ELIZA_ERR_BUNDLE_INVALID, path + ": " + text};
}

// The size of one value in bytes; 0 for strings, whose size is in the file.
uint64_t size_of(gguf_type type) {
    switch (type) {
        case GGUF_TYPE_UINT8:
        case GGUF_TYPE_INT8:
        case GGUF_TYPE_BOOL: return 1;
        case GGUF_TYPE_UINT16:
        case GGUF_TYPE_INT16: return 2;
        case GGUF_TYPE_UINT32:
        case GGUF_TYPE_INT32:
        case GGUF_TYPE_FLOAT32: return 4;
        case GGUF_TYPE_UINT64:
        case GGUF_TYPE_INT64:
        case GGUF_TYPE_FLOAT64: return 8;
        default: return 0;
    }
}

File opened(const std::string & path) {
    File file = open_regular_file(path);
    if (file == nullptr) {
        throw file_error(
            path, errno == 0 ? "is not a regular file" : std::string("cannot be opened: ") + std::strerror(errno));
    }
    return file;
}

}  // namespace

// Reads a file from its beginning, on demand and up to max_header_bytes.
class GgufHeader::Reader {
public:
    explicit Reader(GgufHeader & header) : header_(header), file_(opened(header.file_.path)) {
        const std::optional<uint64_t> size = size_of(file_.get());
        if (!size) throw header_.error(std::string("its size cannot be read: ") + std::strerror(errno));
        file_size_ = *size;
    }

    size_t position() const { return position_; }

    // Reads `n` bytes and returns the position where they begin.
    size_t take(uint64_t n, const std::string & what) {
        if (n > max_header_bytes || position_ + n > max_header_bytes) {
            throw header_.error("the header is larger than " + std::to_string(max_header_bytes >> 20) + " MiB at " +
                                what);
        }
        read_to(position_ + static_cast<size_t>(n), what);
        const size_t begin = position_;
        position_ += static_cast<size_t>(n);
        return begin;
    }

    template <class T>
    T number(const std::string & what) {
        const size_t begin = take(sizeof(T), what);
        return header_.at<T>(begin);
    }

    // A string is stored as a position until the header is complete, because the buffer may be reallocated.
    struct Text {
        size_t begin;
        size_t size;
    };
    Text text(const std::string & what) {
        const auto size = number<uint64_t>(what);
        return {take(size, what), static_cast<size_t>(size)};
    }

private:
    void read_to(size_t end, const std::string & what) {
        std::string & data = header_.data_;
        const size_t had = data.size();
        if (end <= had) return;
        if (end > file_size_) throw header_.error("ends inside " + what);  // before memory is allocated for it
        data.resize(std::min<size_t>(std::min<size_t>(max_header_bytes, file_size_),
                                     std::max<size_t>({end, 2 * had, first_bytes})));
        const size_t got = std::fread(data.data() + had, 1, data.size() - had, file_.get());
        data.resize(had + got);
        if (data.size() < end) throw header_.error("ends inside " + what);
    }

    GgufHeader & header_;
    File file_;
    uintmax_t file_size_ = 0;
    size_t position_ = 0;
};

GgufHeader::GgufHeader(const std::string & path) : file_{path, version_of_file(path)} {
    Reader reader(*this);
    const size_t magic = reader.take(4, "the letters GGUF");
    if (data_.compare(magic, 4, "GGUF") != 0)
        throw error("is not a GGUF file: it does not begin with the letters GGUF");
    const auto version = reader.number<uint32_t>("the version");
    if (version < 2 || version > GGUF_VERSION) {
        throw error("has version " + std::to_string(version) + " of the GGUF format; supported versions: 2 to " +
                    std::to_string(GGUF_VERSION));
    }
    const auto limited = [&](const std::string & what, uint64_t most) {
        const auto n = reader.number<uint64_t>("the number of " + what);
        if (n > most) {
            throw error("states " + std::to_string(n) + " " + what + "; the limit is " + std::to_string(most));
        }
        return n;
    };
    const uint64_t n_tensors = limited("tensors", max_tensors);
    const uint64_t n_keys = limited("keys", max_keys);

    std::vector<std::pair<Reader::Text, Value>> values;
    for (uint64_t i = 0; i < n_keys; ++i) {
        const std::string number = "key " + std::to_string(i);
        const Reader::Text key = reader.text("the name of " + number);
        const std::string what = "the value of " + number;
        Value value{};
        value.count = 1;
        auto type = reader.number<uint32_t>(what);
        value.is_array = type == GGUF_TYPE_ARRAY;
        if (value.is_array) {
            type = reader.number<uint32_t>(what);
            value.count = reader.number<uint64_t>(what);
            if (value.count > max_items) {
                throw error(number + " is an array of " + std::to_string(value.count) + " items; the limit is " +
                            std::to_string(max_items));
            }
        }
        if (type >= GGUF_TYPE_COUNT || type == GGUF_TYPE_ARRAY) {
            throw error(number + " has the type " + std::to_string(type) + ", which GGUF does not define");
        }
        value.type = static_cast<gguf_type>(type);
        value.begin = reader.position();
        if (value.type == GGUF_TYPE_STRING) {
            for (uint64_t item = 0; item < value.count; ++item) reader.text(what);
        } else {
            reader.take(value.count * size_of(value.type), what);
        }
        values.emplace_back(key, value);
    }

    std::vector<Reader::Text> names;
    for (uint64_t i = 0; i < n_tensors; ++i) {
        const std::string what = "tensor " + std::to_string(i);
        names.push_back(reader.text(what));
        GgufTensor tensor;
        const auto n_dims = reader.number<uint32_t>(what);
        if (n_dims > GGML_MAX_DIMS) {
            throw error(what + " has " + std::to_string(n_dims) + " dimensions; the limit is " +
                        std::to_string(GGML_MAX_DIMS));
        }
        for (uint32_t d = 0; d < n_dims; ++d) tensor.dims.push_back(reader.number<uint64_t>(what));
        tensor.type = reader.number<uint32_t>(what);
        tensor.offset = reader.number<uint64_t>(what);
        tensors_.push_back(std::move(tensor));
    }

    // gguf.cpp compares keys up to the first NUL, and uses the first match. It rejects a file with duplicate names
    // itself.
    const auto view = [&](const Reader::Text & text) {
        const std::string_view name = std::string_view(data_).substr(text.begin, text.size);
        return name.substr(0, name.find('\0'));
    };
    for (const auto & [key, value] : values) values_.emplace(view(key), value);
    for (size_t i = 0; i < names.size(); ++i) tensors_[i].name = view(names[i]);

    // gguf.cpp expects a 32-bit power of two.
    const uint64_t alignment = u32("general.alignment").value_or(GGUF_DEFAULT_ALIGNMENT);
    if (alignment == 0 || (alignment & (alignment - 1)) != 0) {
        throw error("general.alignment is " + std::to_string(alignment) + ", expected a power of 2");
    }
    file_.header_bytes = (reader.position() + alignment - 1) / alignment * alignment;
}

const GgufHeader::Value * GgufHeader::find(std::string_view key) const {
    const auto found = values_.find(key);
    return found == values_.end() ? nullptr : &found->second;
}

bool GgufHeader::is_scalar(std::string_view key, gguf_type type) const {
    const Value * value = find(key);
    return value != nullptr && !value->is_array && value->type == type;
}

std::string_view GgufHeader::text_at(size_t begin) const {
    const std::string_view text = std::string_view(data_).substr(begin + sizeof(uint64_t), at<uint64_t>(begin));
    return text.substr(0, text.find('\0'));
}

std::optional<bool> GgufHeader::boolean(std::string_view key) const {
    const auto value = number<int8_t>(key, GGUF_TYPE_BOOL);
    return value ? std::optional<bool>(*value != 0) : std::nullopt;
}

std::optional<std::string_view> GgufHeader::text(std::string_view key) const {
    if (!is_scalar(key, GGUF_TYPE_STRING)) return std::nullopt;
    return text_at(find(key)->begin);
}

std::vector<std::string_view> GgufHeader::texts(std::string_view key) const {
    const Value * value = find(key);
    if (value == nullptr || !value->is_array || value->type != GGUF_TYPE_STRING) return {};
    std::vector<std::string_view> items(value->count);
    size_t begin = value->begin;
    for (std::string_view & item : items) {
        item = text_at(begin);
        begin += sizeof(uint64_t) + at<uint64_t>(begin);
    }
    return items;
}

std::vector<uint32_t> GgufHeader::per_layer(std::string_view key, uint32_t n_layers) const {
    if (const auto one = u32(key)) return std::vector<uint32_t>(n_layers, *one);
    std::vector<uint32_t> items;
    for (const gguf_type type : {GGUF_TYPE_UINT32, GGUF_TYPE_INT32}) {
        if (items.empty()) items = numbers<uint32_t>(key, type);
    }
    for (const int8_t item : numbers<int8_t>(key, GGUF_TYPE_BOOL)) items.push_back(item != 0);
    if (items.size() != n_layers) items.clear();
    return items;
}

const GgufTensor * GgufHeader::tensor(std::string_view name) const {
    const auto found =
        std::find_if(tensors_.begin(), tensors_.end(), [&](const GgufTensor & tensor) { return tensor.name == name; });
    return found == tensors_.end() ? nullptr : &*found;
}

Error GgufHeader::error(const std::string & text) const { return file_error(file_.path, text); }

}  // namespace eliza
