package rejoin;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * JSON (RFC 8259), as far as the manager's protocol uses it: objects become maps, arrays lists, numbers doubles. A
 * security provider must not bring libraries of its own into other people's programs, and the JDK has none.
 */
final class Json {
  /** The protocol nests four deep. */
  private static final int DEEPEST = 16;

  private final String text;
  private int at;

  private Json(String text) {
    this.text = text;
  }

  /** @throws IllegalArgumentException if it is not JSON */
  static Object read(String text) {
    Json json = new Json(text);
    Object value = json.value(0);
    json.blank();
    if (json.at < text.length()) {
      throw json.wrong();
    }
    return value;
  }

  /**
   * Returns an object's value under a name.
   *
   * @throws IllegalArgumentException if there is none, or one of another kind
   */
  static <T> T of(Map<?, ?> object, String name, Class<T> kind) {
    Object value = object.get(name);
    if (!kind.isInstance(value)) {
      throw new IllegalArgumentException("no " + name);
    }
    return kind.cast(value);
  }

  static String quoted(String text) {
    StringBuilder quoted = new StringBuilder(text.length() + 2).append('"');
    for (char c : text.toCharArray()) {
      if (c == '"' || c == '\\') {
        quoted.append('\\').append(c);
      } else if (c < ' ') {
        quoted.append(String.format("\\u%04x", (int) c));
      } else {
        quoted.append(c);
      }
    }
    return quoted.append('"').toString();
  }

  private Object value(int depth) {
    blank();
    if (depth > DEEPEST || at >= text.length()) {
      throw wrong();
    }
    switch (text.charAt(at)) {
      case '{':
        return object(depth);
      case '[':
        return array(depth);
      case '"':
        return string();
      case 't':
        return word("true", Boolean.TRUE);
      case 'f':
        return word("false", Boolean.FALSE);
      case 'n':
        return word("null", null);
      default:
        return number();
    }
  }

  private Map<String, Object> object(int depth) {
    Map<String, Object> fields = new LinkedHashMap<>();
    at++;
    for (boolean more = !ends('}'); more; more = !ends('}')) {
      if (!fields.isEmpty()) {
        expect(',');
      }
      blank();
      String name = string();
      expect(':');
      fields.put(name, value(depth + 1));
    }
    return fields;
  }

  private List<Object> array(int depth) {
    List<Object> values = new ArrayList<>();
    at++;
    for (boolean more = !ends(']'); more; more = !ends(']')) {
      if (!values.isEmpty()) {
        expect(',');
      }
      values.add(value(depth + 1));
    }
    return values;
  }

  private String string() {
    expect('"');
    StringBuilder string = new StringBuilder();
    while (at < text.length() && text.charAt(at) != '"') {
      char c = text.charAt(at++);
      string.append(c == '\\' ? escaped() : c);
    }
    expect('"');
    return string.toString();
  }

  private char escaped() {
    char c = at < text.length() ? text.charAt(at++) : 0;
    switch (c) {
      case 'b':
        return '\b';
      case 'f':
        return '\f';
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 't':
        return '\t';
      case '"':
      case '\\':
      case '/':
        return c;
      case 'u':
        if (at + 4 <= text.length()) {
          at += 4;
          return (char) Integer.parseInt(text.substring(at - 4, at), 16);
        }
        throw wrong();
      default:
        throw wrong();
    }
  }

  private Double number() {
    int from = at;
    while (at < text.length() && "+-.0123456789eE".indexOf(text.charAt(at)) >= 0) {
      at++;
    }
    return Double.valueOf(text.substring(from, at));
  }

  private Object word(String word, Object value) {
    if (!text.startsWith(word, at)) {
      throw wrong();
    }
    at += word.length();
    return value;
  }

  private boolean ends(char c) {
    blank();
    if (at < text.length() && text.charAt(at) == c) {
      at++;
      return true;
    }
    return false;
  }

  private void expect(char c) {
    if (!ends(c)) {
      throw wrong();
    }
  }

  private void blank() {
    while (at < text.length() && " \t\r\n".indexOf(text.charAt(at)) >= 0) {
      at++;
    }
  }

  private IllegalArgumentException wrong() {
    return new IllegalArgumentException("no JSON, at character " + at);
  }
}
