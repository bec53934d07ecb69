// Calls the program's method once for each list of arguments, and writes each answer as JSON.
package assay;  // a program's own Path or List hides no name here

import java.lang.reflect.*;
import java.math.BigInteger;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.util.*;

class AssayDriver {
    static final List<String> LIKELY = List.of("Main", "Problem", "Solution");
    static String[] classes;
    static String text;
    static int at = 0;

    public static void main(String[] none) throws Throwable {
        text = new String(System.in.readAllBytes(), StandardCharsets.UTF_8);
        StringBuilder answers = new StringBuilder();
        classes = new java.util.jar.JarFile("program").stream().map(entry -> entry.getName()).filter(name -> name.matches("[^$/]+\\.class"))
            .map(name -> name.replace(".class", "")).sorted().sorted(Comparator.comparing(name -> -LIKELY.indexOf(name))).toArray(String[]::new);
        for (Object given : (List<?>) read()) {
            String line;
            try {
                line = "[" + write(call((List<?>) given)) + "]";
            } catch (Throwable raised) {
                Throwable cause = raised instanceof InvocationTargetException ? raised.getCause() : raised;
                line = "{\"raised\":" + quoted(String.valueOf(cause)) + "}";
            }
            answers.append(line).append('\n');
        }
        Files.write(Path.of("answers"), answers.toString().getBytes(StandardCharsets.UTF_8));
    }

    static Object call(List<?> given) throws Throwable {
        for (String name : classes) {
            Class<?> owner = Class.forName(name);
            for (Method method : owner.getDeclaredMethods()) {
                if (!method.getName().equals("FUNCTION") || method.getParameterCount() != given.size()) continue;
                if (method.isSynthetic() || Modifier.isAbstract(method.getModifiers())) continue;
                method.setAccessible(true);
                Object self = null;
                if (!Modifier.isStatic(method.getModifiers())) {
                    Constructor<?> constructor = owner.getDeclaredConstructor();
                    constructor.setAccessible(true);
                    self = constructor.newInstance();
                }
                Object[] arguments = new Object[given.size()];
                for (int n = 0; n < arguments.length; n++) arguments[n] = convert(given.get(n), method.getGenericParameterTypes()[n]);
                return method.invoke(self, arguments);
            }
        }
        throw new NoSuchMethodException("FUNCTION with " + given.size() + " parameters in any class");
    }

    static char next() {
        while (Character.isWhitespace(text.charAt(at))) at++;
        return text.charAt(at);
    }

    static boolean takes(char wanted) {
        if (next() != wanted) return false;
        at++;
        return true;
    }

    static Object read() {
        if (takes('[')) {
            List<Object> found = new ArrayList<>();
            for (; !takes(']'); takes(',')) found.add(read());
            return found;
        }
        if (takes('{')) {
            Map<Object, Object> found = new LinkedHashMap<>();
            for (; !takes('}'); takes(',')) {
                Object key = read();
                takes(':');
                found.put(key, read());
            }
            return found;
        }
        if (takes('"')) {
            StringBuilder found = new StringBuilder();
            for (char one = text.charAt(at++); one != '"'; one = text.charAt(at++)) {
                if (one == '\\') {
                    one = text.charAt(at++);
                    int which = "bfnrt".indexOf(one);
                    if (one == 'u') {
                        one = (char) Integer.parseInt(text.substring(at, at += 4), 16);
                    } else if (which >= 0) {
                        one = "\b\f\n\r\t".charAt(which);
                    }
                }
                found.append(one);
            }
            return found.toString();
        }
        int start = at;
        while (",]} \n".indexOf(text.charAt(at)) < 0) at++;
        String token = text.substring(start, at);
        if (token.equals("null")) return null;
        if (token.equals("true") || token.equals("false")) return token.equals("true");
        return token.matches("-?\\d+") ? new BigInteger(token) : (Object) Double.valueOf(token);
    }

    static Object convert(Object value, Type wanted) {
        Type[] inner = wanted instanceof ParameterizedType ? ((ParameterizedType) wanted).getActualTypeArguments() : new Type[] {Object.class, Object.class};
        Type raw = wanted instanceof ParameterizedType ? ((ParameterizedType) wanted).getRawType() : wanted;
        Class<?> kind = raw instanceof Class ? (Class<?>) raw : Object.class;
        if (kind == Optional.class) return Optional.ofNullable(value == null ? null : convert(value, inner[0]));
        if (value == null) return null;
        if (kind == int.class || kind == Integer.class) return ((BigInteger) value).intValueExact();
        if (kind == long.class || kind == Long.class) return ((BigInteger) value).longValueExact();
        if (kind == double.class || kind == Double.class) return ((Number) value).doubleValue();
        if (kind == float.class || kind == Float.class) return ((Number) value).floatValue();
        if (kind == char.class || kind == Character.class) return ((String) value).charAt(0);
        if (kind.isArray()) {
            List<?> items = (List<?>) value;
            Object made = Array.newInstance(kind.getComponentType(), items.size());
            for (int n = 0; n < items.size(); n++) Array.set(made, n, convert(items.get(n), kind.getComponentType()));
            return made;
        }
        if (value instanceof List) {
            Collection<Object> made = Set.class.isAssignableFrom(kind) ? new LinkedHashSet<>() : kind.isAssignableFrom(ArrayList.class) ? new ArrayList<>() : new LinkedList<>();
            for (Object item : (List<?>) value) made.add(convert(item, inner[0]));
            return made;
        }
        if (value instanceof Map) {
            Map<Object, Object> made = kind.isAssignableFrom(LinkedHashMap.class) ? new LinkedHashMap<>() : new TreeMap<>();
            for (Map.Entry<?, ?> one : ((Map<?, ?>) value).entrySet()) {
                boolean whole = inner[0] == Integer.class || inner[0] == Long.class;
                Object key = whole ? new BigInteger((String) one.getKey()) : one.getKey();
                made.put(convert(key, inner[0]), convert(one.getValue(), inner[1]));
            }
            return made;
        }
        if (value instanceof BigInteger && kind != BigInteger.class) {
            BigInteger number = (BigInteger) value;
            return number.bitLength() < 32 ? (Object) number.intValueExact() : number.bitLength() < 64 ? (Object) number.longValueExact() : number;
        }
        return value;
    }

    static String quoted(String said) {
        StringBuilder out = new StringBuilder("\"");
        for (char one : said.toCharArray()) {
            if (one == '"' || one == '\\') out.append('\\').append(one);
            else if (one < ' ') out.append(String.format("\\u%04x", (int) one));
            else out.append(one);
        }
        return out.append('"').toString();
    }

    static String write(Object value) {
        if (value == null) return "null";
        if (value instanceof Optional) return write(((Optional<?>) value).orElse(null));
        if (value instanceof String || value instanceof Character) return quoted(value.toString());
        if (value instanceof Boolean || value instanceof Number) return value.toString();
        StringJoiner items = new StringJoiner(",", "[", "]");
        if (value.getClass().isArray()) {
            for (int n = 0; n < Array.getLength(value); n++) items.add(write(Array.get(value, n)));
            return items.toString();
        }
        if (value instanceof Iterable) {
            for (Object item : (Iterable<?>) value) items.add(write(item));
            return items.toString();
        }
        if (value instanceof Map) {
            items = new StringJoiner(",", "{", "}");
            for (Map.Entry<?, ?> one : ((Map<?, ?>) value).entrySet()) items.add(quoted(String.valueOf(one.getKey())) + ":" + write(one.getValue()));
            return items.toString();
        }
        throw new IllegalArgumentException("a result of " + value.getClass() + " is no data");
    }
}
