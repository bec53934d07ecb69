mod program { PROGRAM

pub fn assay_drive() { crate::assay_driver::drive(FUNCTION) }
}

// Calls the program's function once for each list of arguments, and writes each answer as JSON.
mod assay_driver {
    use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
    use std::fmt::{Debug, Display};
    use std::hash::Hash;
    use std::panic::{catch_unwind, AssertUnwindSafe};
    use std::str::FromStr;

    pub struct Input {
        text: Vec<char>,
        at: usize,
    }

    impl Input {
        fn next(&mut self) -> char {
            while self.at < self.text.len() && " \n\t".contains(self.text[self.at]) {
                self.at += 1;
            }
            *self.text.get(self.at).unwrap_or(&'\0')
        }
        fn takes(&mut self, wanted: char) -> bool {
            let found = self.next() == wanted;
            self.at += found as usize;
            found
        }
        fn needs(&mut self, wanted: char) {
            assert!(self.takes(wanted), "the arguments do not fit the function");
        }
        fn token(&mut self) -> String {
            self.next();
            let start = self.at;
            while self.at < self.text.len() && !",]} \n".contains(self.text[self.at]) {
                self.at += 1;
            }
            self.text[start..self.at].iter().collect()
        }
        fn parsed<T: FromStr>(&mut self) -> T {
            let token = self.token();
            token.parse().ok().unwrap_or_else(|| panic!("an argument does not fit its type: {token}"))
        }
        fn quoted(&mut self) -> String {
            let mut found = String::new();
            self.needs('"');
            while self.text[self.at] != '"' {
                let mut one = self.text[self.at];
                self.at += 1;
                if one == '\\' {
                    one = self.text[self.at];
                    self.at += 1;
                    if one == 'u' {
                        let code: String = self.text[self.at..self.at + 4].iter().collect();
                        one = char::from_u32(u32::from_str_radix(&code, 16).unwrap()).unwrap();
                        self.at += 4;
                    } else if let Some(which) = "bfnrt".find(one) {
                        one = "\u{8}\u{c}\n\r\t".chars().nth(which).unwrap();
                    }
                }
                found.push(one);
            }
            self.at += 1;
            found
        }
        fn each(&mut self, opens: char, closes: char, mut read: impl FnMut(&mut Input)) {
            self.needs(opens);
            if self.takes(closes) {
                return;
            }
            read(self);
            while self.takes(',') {
                read(self);
            }
            self.needs(closes);
        }
        fn items<T: Read, C: FromIterator<T>>(&mut self) -> C {
            let mut found = Vec::new();
            self.each('[', ']', |input| found.push(T::read(input)));
            found.into_iter().collect()
        }
        fn pairs<K: FromStr, V: Read, C: FromIterator<(K, V)>>(&mut self) -> C {
            let mut found = Vec::new();
            self.each('{', '}', |input| {
                let key = input.quoted().parse().ok().expect("a key does not fit its type");
                input.needs(':');
                found.push((key, V::read(input)));
            });
            found.into_iter().collect()
        }
    }

    pub trait Read {
        fn read(input: &mut Input) -> Self;
    }
    pub trait Write {
        fn write(&self, out: &mut String);
    }

    fn write_text(out: &mut String, text: &str) {
        out.push('"');
        for one in text.chars() {
            match one {
                '"' | '\\' => out.extend(['\\', one]),
                _ if one < ' ' => out.push_str(&format!("\\u{:04x}", one as u32)),
                _ => out.push(one),
            }
        }
        out.push('"');
    }
    fn write_each<I>(out: &mut String, ends: [char; 2], items: impl Iterator<Item = I>, write: impl Fn(&mut String, I)) {
        out.push(ends[0]);
        for (at, item) in items.enumerate() {
            if at > 0 {
                out.push(',');
            }
            write(out, item);
        }
        out.push(ends[1]);
    }
    fn write_items<'a, T: Write + 'a>(out: &mut String, items: impl Iterator<Item = &'a T>) {
        write_each(out, ['[', ']'], items, |out, item| item.write(out));
    }
    fn write_pairs<'a, K: Display + 'a, V: Write + 'a>(out: &mut String, pairs: impl Iterator<Item = (&'a K, &'a V)>) {
        write_each(out, ['{', '}'], pairs, |out, (key, value)| {
            write_text(out, &key.to_string());
            out.push(':');
            value.write(out);
        });
    }

    macro_rules! plain {
        ($($type:ty)*) => { $(
            impl Read for $type { fn read(input: &mut Input) -> Self { input.parsed() } }
            impl Write for $type {
                fn write(&self, out: &mut String) {
                    out.push_str(&format!("{self:?}").replace("inf", "Infinity"))
                }
            }
        )* };
    }
    plain!(i8 i16 i32 i64 i128 isize u8 u16 u32 u64 u128 usize bool f32 f64);

    impl Read for String { fn read(input: &mut Input) -> Self { input.quoted() } }
    impl Read for char { fn read(input: &mut Input) -> Self { input.quoted().chars().next().unwrap() } }
    impl Read for Box<str> { fn read(input: &mut Input) -> Self { input.quoted().into_boxed_str() } }
    impl<T: Read> Read for Vec<T> { fn read(input: &mut Input) -> Self { input.items() } }
    impl<T: Read> Read for VecDeque<T> { fn read(input: &mut Input) -> Self { input.items() } }
    impl<T: Read + Eq + Hash> Read for HashSet<T> { fn read(input: &mut Input) -> Self { input.items() } }
    impl<T: Read + Ord> Read for BTreeSet<T> { fn read(input: &mut Input) -> Self { input.items() } }
    impl<T: Read> Read for Box<[T]> { fn read(input: &mut Input) -> Self { input.items() } }
    impl<T: ?Sized> Read for &'static T where Box<T>: Read { fn read(input: &mut Input) -> Self { Box::leak(Box::read(input)) } }
    impl<T: ?Sized> Read for &'static mut T where Box<T>: Read { fn read(input: &mut Input) -> Self { Box::leak(Box::read(input)) } }
    impl<T: Read> Read for Box<T> { fn read(input: &mut Input) -> Self { Box::new(T::read(input)) } }
    impl<T: Read + Debug, const N: usize> Read for [T; N] { fn read(input: &mut Input) -> Self { input.items::<T, Vec<T>>().try_into().unwrap() } }
    impl<K: FromStr + Eq + Hash, V: Read> Read for HashMap<K, V> { fn read(input: &mut Input) -> Self { input.pairs() } }
    impl<K: FromStr + Ord, V: Read> Read for BTreeMap<K, V> { fn read(input: &mut Input) -> Self { input.pairs() } }
    impl<T: Read> Read for Option<T> {
        fn read(input: &mut Input) -> Self {
            if input.next() != 'n' {
                return Some(T::read(input));
            }
            input.token();
            None
        }
    }

    impl Write for () { fn write(&self, out: &mut String) { out.push_str("null") } }
    impl Write for str { fn write(&self, out: &mut String) { write_text(out, self) } }
    impl Write for String { fn write(&self, out: &mut String) { write_text(out, self) } }
    impl Write for char { fn write(&self, out: &mut String) { write_text(out, &self.to_string()) } }
    impl<T: Write> Write for [T] { fn write(&self, out: &mut String) { write_items(out, self.iter()) } }
    impl<T: Write> Write for Vec<T> { fn write(&self, out: &mut String) { write_items(out, self.iter()) } }
    impl<T: Write> Write for VecDeque<T> { fn write(&self, out: &mut String) { write_items(out, self.iter()) } }
    impl<T: Write> Write for HashSet<T> { fn write(&self, out: &mut String) { write_items(out, self.iter()) } }
    impl<T: Write> Write for BTreeSet<T> { fn write(&self, out: &mut String) { write_items(out, self.iter()) } }
    impl<T: Write, const N: usize> Write for [T; N] { fn write(&self, out: &mut String) { write_items(out, self.iter()) } }
    impl<T: Write + ?Sized> Write for &T { fn write(&self, out: &mut String) { (**self).write(out) } }
    impl<T: Write + ?Sized> Write for &mut T { fn write(&self, out: &mut String) { (**self).write(out) } }
    impl<T: Write + ?Sized> Write for Box<T> { fn write(&self, out: &mut String) { (**self).write(out) } }
    impl<K: Display, V: Write> Write for HashMap<K, V> { fn write(&self, out: &mut String) { write_pairs(out, self.iter()) } }
    impl<K: Display, V: Write> Write for BTreeMap<K, V> { fn write(&self, out: &mut String) { write_pairs(out, self.iter()) } }
    impl<T: Write> Write for Option<T> {
        fn write(&self, out: &mut String) {
            match self {
                Some(value) => value.write(out),
                None => out.push_str("null"),
            }
        }
    }
    impl<T: Write, E: Debug> Write for Result<T, E> {
        fn write(&self, out: &mut String) {
            match self {
                Ok(value) => value.write(out),
                Err(error) => panic!("{error:?}"),
            }
        }
    }

    macro_rules! tuple {
        ($($type:ident $at:tt)*) => {
            impl<$($type: Read),*> Read for ($($type,)*) {
                fn read(input: &mut Input) -> Self {
                    input.needs('[');
                    let found = ($({ if $at > 0 { input.needs(','); } $type::read(input) },)*);
                    input.needs(']');
                    found
                }
            }
            impl<$($type: Write),*> Write for ($($type,)*) {
                fn write(&self, out: &mut String) {
                    $( out.push(if $at > 0 { ',' } else { '[' }); self.$at.write(out); )*
                    out.push(']');
                }
            }
            impl<F: Fn($($type),*) -> R, R: Write, $($type: Read),*> Driven<($($type,)*), R> for F {
                fn call(&self, input: &mut Input) -> String {
                    let given = <($($type,)*)>::read(input);
                    answer(|| (self)($(given.$at),*))
                }
            }
        };
    }
    pub trait Driven<A, R> {
        fn call(&self, input: &mut Input) -> String;
    }
    impl<F: Fn() -> R, R: Write> Driven<(), R> for F {
        fn call(&self, input: &mut Input) -> String {
            input.needs('[');
            input.needs(']');
            answer(self)
        }
    }
    tuple!(A 0);
    tuple!(A 0 B 1);
    tuple!(A 0 B 1 C 2);
    tuple!(A 0 B 1 C 2 D 3);
    tuple!(A 0 B 1 C 2 D 3 E 4);
    tuple!(A 0 B 1 C 2 D 3 E 4 G 5);

    fn answer<R: Write>(call: impl FnOnce() -> R) -> String {
        let done = catch_unwind(AssertUnwindSafe(|| {
            let mut line = String::from("[");
            call().write(&mut line);
            line + "]"
        }));
        done.unwrap_or_else(|raised| {
            let said = raised.downcast_ref::<&str>().map(|text| text.to_string());
            let said = said.or(raised.downcast_ref::<String>().cloned()).unwrap_or_default();
            let mut line = String::from("{\"raised\":");
            write_text(&mut line, &format!("panicked: {said}"));
            line + "}"
        })
    }

    pub fn drive<A, R>(function: impl Driven<A, R>) {
        let mut text = String::new();
        std::io::Read::read_to_string(&mut std::io::stdin(), &mut text).unwrap();
        let mut input = Input { text: text.chars().collect(), at: 0 };
        let mut answers = String::new();
        input.each('[', ']', |input| answers += &(function.call(input) + "\n"));
        std::fs::write("answers", answers).unwrap();
    }
}

fn main() {
    program::assay_drive()
}
