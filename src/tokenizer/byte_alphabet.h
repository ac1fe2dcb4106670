// The alphabet of byte-level vocabularies (GPT-2's): every byte has a printable character, so that
// tokens are readable text. Printable Latin-1 stands for itself, the rest for U+0100 and on.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::tokenizer {

class ByteAlphabet {
 public:
  ByteAlphabet() {
    byte_of_.fill(-1);
    uint16_t next = 256;
    for (int byte = 0; byte < 256; ++byte) {
      const bool printable =
          (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte < 0x100 && byte != 0xad);
      const uint16_t point = printable ? static_cast<uint16_t>(byte) : next++;
      byte_of_[point] = static_cast<int16_t>(byte);
      std::string& text = text_of_[static_cast<size_t>(byte)];
      if (point >= 0x80) text += static_cast<char>(0xc0 | (point >> 6));
      text += static_cast<char>(point >= 0x80 ? 0x80 | (point & 0x3f) : point);
    }
  }

  const std::string& text_of(uint8_t byte) const { return text_of_[byte]; }

  // The bytes that `text` spells, or false where it has a character outside the alphabet.
  bool spell(std::string_view text, std::string& bytes) const {
    for (size_t i = 0; i < text.size(); ++i) {
      unsigned point = static_cast<uint8_t>(text[i]);
      if (point >= 0x80) {
        if ((point & 0xe0) != 0xc0 || i + 1 == text.size()) return false;
        const unsigned second = static_cast<uint8_t>(text[++i]);
        if ((second & 0xc0) != 0x80) return false;
        point = (point & 0x1f) << 6 | (second & 0x3f);
      }
      if (point >= byte_of_.size() || byte_of_[point] < 0) return false;
      bytes += static_cast<char>(byte_of_[point]);
    }
    return true;
  }

 private:
  std::array<std::string, 256> text_of_;
  std::array<int16_t, 256 + 68> byte_of_;  // [code point]; 68 bytes are not printable
};

}  // namespace lockstep::tokenizer
