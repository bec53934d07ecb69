// Calls the program's function once for each list of arguments, and writes each answer as JSON.
#include <algorithm>
#include <array>
#include <charconv>
#include <climits>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <iterator>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace assay_driver {

struct Input {
  std::string text;
  size_t at = 0;

  char next() {
    while (std::strchr(" \n\t", text[at]) && at < text.size()) at++;
    return text[at];
  }
  bool takes(char wanted) { return next() == wanted && ++at; }
  void needs(char wanted) {
    if (!takes(wanted)) throw std::invalid_argument("the arguments do not fit the function");
  }
  template <class F> void each(char opens, char closes, F read) {
    needs(opens);
    if (takes(closes)) return;
    do read();
    while (takes(','));
    needs(closes);
  }
  std::string token() {
    next();
    size_t start = at, end = std::min(text.find_first_of(",]} \n", at), text.size());
    at = end;
    return text.substr(start, end - start);
  }
  std::string quoted() {
    std::string found;
    needs('"');
    while (text.at(at) != '"') {
      if (text[at] != '\\') {
        found += text[at++];
        continue;
      }
      char escape = text.at(at + 1);
      at += 2;
      static const std::string letters = "bfnrt", meant = "\b\f\n\r\t";
      if (escape == 'u') {  // only control characters are written so
        found += (char)std::strtol(text.substr(at, 4).c_str(), nullptr, 16);
        at += 4;
      } else {
        size_t which = letters.find(escape);
        found += which == std::string::npos ? escape : meant[which];
      }
    }
    at++;
    return found;
  }
};

template <class T, class = void> struct is_map : std::false_type {};
template <class T> struct is_map<T, std::void_t<typename T::mapped_type>> : std::true_type {};
template <class T, class = void> struct is_tuple : std::false_type {};
template <class T> struct is_tuple<T, std::void_t<decltype(std::tuple_size<T>::value)>> : std::true_type {};
template <class T> struct is_optional : std::false_type {};
template <class T> struct is_optional<std::optional<T>> : std::true_type {};

template <class T> T read(Input &in) {
  if constexpr (std::is_same_v<T, bool>) {
    return in.token() == "true";
  } else if constexpr (std::is_same_v<T, char>) {
    return in.quoted().at(0);
  } else if constexpr (std::is_integral_v<T>) {
    std::string token = in.token();
    T value{};
    auto end = token.data() + token.size();
    auto done = std::from_chars(token.data(), end, value);
    if (done.ec != std::errc() || done.ptr != end) throw std::out_of_range("an argument does not fit its type: " + token);
    return value;
  } else if constexpr (std::is_floating_point_v<T>) {
    return (T)std::strtod(in.token().c_str(), nullptr);
  } else if constexpr (std::is_same_v<T, std::string>) {
    return in.quoted();
  } else if constexpr (is_optional<T>::value) {
    if (in.next() != 'n') return read<typename T::value_type>(in);
    in.token();
    return std::nullopt;
  } else if constexpr (is_tuple<T>::value) {
    T found{};
    bool first = true;
    in.needs('[');
    std::apply([&](auto &...items) {
      ((first ? void(first = false) : in.needs(','), items = read<std::decay_t<decltype(items)>>(in)), ...);
    }, found);
    in.needs(']');
    return found;
  } else if constexpr (is_map<T>::value) {
    T found;
    in.each('{', '}', [&] {
      Input key{in.quoted()};
      if (!std::is_arithmetic_v<typename T::key_type> || std::is_same_v<typename T::key_type, char>) key.text = '"' + key.text + '"';
      in.needs(':');
      auto name = read<typename T::key_type>(key);
      found[name] = read<typename T::mapped_type>(in);
    });
    return found;
  } else {
    T found;
    in.each('[', ']', [&] { found.insert(found.end(), read<typename T::value_type>(in)); });
    return found;
  }
}

inline void write_text(std::string &out, const std::string &text) {
  out += '"';
  for (unsigned char one : text) {
    char escaped[8];
    std::snprintf(escaped, sizeof escaped, one < 32 ? "\\u%04x" : one == '"' || one == '\\' ? "\\%c" : "%c", one);
    out += one ? escaped : "\\u0000";
  }
  out += '"';
}

template <class T> void write(std::string &out, const T &value) {
  if constexpr (std::is_same_v<T, bool>) {
    out += value ? "true" : "false";
  } else if constexpr (std::is_same_v<T, char>) {
    write_text(out, std::string(1, value));
  } else if constexpr (std::is_integral_v<T>) {
    out += std::to_string(value);
  } else if constexpr (std::is_floating_point_v<T>) {
    char text[64];
    std::snprintf(text, sizeof text, std::is_same_v<T, float> ? "%.9g" : "%.17g", (double)value);
    out += std::isnan(value) ? "NaN" : std::isinf(value) ? (value < 0 ? "-Infinity" : "Infinity") : text;
  } else if constexpr (std::is_convertible_v<T, std::string>) {
    write_text(out, value);
  } else if constexpr (is_optional<T>::value) {
    value ? write(out, *value) : void(out += "null");
  } else if constexpr (is_tuple<T>::value) {
    const char *before = "[";
    std::apply([&](const auto &...items) { ((out += before, before = ",", write(out, items)), ...); }, value);
    out += *before == '[' ? "[]" : "]";
  } else if constexpr (is_map<T>::value) {
    const char *before = "{";
    for (const auto &[key, item] : value) {
      std::string name;
      write(name, key);
      out += before, before = ",";
      name[0] == '"' ? void(out += name) : write_text(out, name);
      out += ':';
      write(out, item);
    }
    out += *before == '{' ? "{}" : "}";
  } else {
    const char *before = "[";
    for (typename T::value_type item : value) out += before, before = ",", write(out, item);
    out += *before == '[' ? "[]" : "]";
  }
}

template <class R, class... A, class F> int drive(R (*)(A...), F function) {
  Input in{std::string(std::istreambuf_iterator<char>(std::cin), {})};
  std::string answers;
  in.each('[', ']', [&] {
    auto given = read<std::tuple<std::decay_t<A>...>>(in);
    std::string line = "[";
    try {
      if constexpr (std::is_void_v<R>) std::apply(function, given), line += "null";
      else write(line, std::decay_t<R>(std::apply(function, given)));
      line += "]";
    } catch (const std::exception &error) {
      line = "{\"raised\":";
      write_text(line, error.what());
      line += "}";
    } catch (...) {
      line = "{\"raised\":\"an exception\"}";
    }
    answers += line + "\n";
  });
  std::FILE *file = std::fopen("answers", "w");
  std::fwrite(answers.data(), 1, answers.size(), file);
  return std::fclose(file);
}

template <class R, class... A> int drive(R (*function)(A...)) { return drive(function, function); }
template <class R, class... A, class S, class M> int drive(R (*types)(A...), S, M method) {
  return drive(types, [=](A... given) -> R { return (S().*method)(given...); });
}
template <class S, class R, class... A> int drive(R (S::*method)(A...)) { return drive((R (*)(A...))0, S(), method); }
template <class S, class R, class... A> int drive(R (S::*method)(A...) const) { return drive((R (*)(A...))0, S(), method); }

}  // namespace assay_driver

#define main program_main
#line 1
PROGRAM
#undef main
#undef int
signed main() { return assay_driver::drive(&::FUNCTION); }
