//! Structured fields (RFC 9651): dictionaries and items, as far as requests use them.
//!
//! A field is valid as a whole or ignored as a whole (section 4.2): a member in front of a fault means nothing.
//! Every kind of value is therefore parsed, and only those that a field here can have are returned. The cost is
//! proportional to the length of the field.

/// A value without its parameters.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Value<'f> {
    /// `?0`, `?1`, or a member without a value, which is true.
    Boolean(bool),
    /// At most 15 digits.
    Integer(i64),
    /// The base64 text of a byte sequence, not decoded; its padding may be missing.
    Binary(&'f [u8]),
    /// A decimal, string, token, date, display string or inner list.
    Other,
}

/// The field is not what it should be.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct NotStructured;

/// Passes the key and the value of each member of a dictionary (section 4.2.2) to `member`, in order. If a key
/// occurs again, its last value counts.
///
/// # Errors
/// If the field is not a dictionary: what `member` got is to be ignored.
pub fn dictionary<'f>(
    field: &'f [u8],
    mut member: impl FnMut(&'f [u8], Value<'f>),
) -> Result<(), NotStructured> {
    let mut input = Input(field);
    input.skip(|byte| byte == b' ');
    while !input.0.is_empty() {
        let key = input.key()?;
        let value = match input.eat(b'=') {
            true if input.0.first() == Some(&b'(') => input.inner_list()?,
            true => input.bare_item()?,
            false => Value::Boolean(true),
        };
        input.parameters()?;
        member(key, value);
        input.skip(is_blank);
        if input.0.is_empty() {
            break;
        }
        input.expect(b',')?;
        input.skip(is_blank);
        // A comma is followed by a member.
        if input.0.is_empty() {
            return Err(NotStructured);
        }
    }
    Ok(())
}

/// The value of an item (section 4.2.3).
///
/// # Errors
/// If the field is not an item.
pub fn item(field: &[u8]) -> Result<Value<'_>, NotStructured> {
    let mut input = Input(field);
    input.skip(|byte| byte == b' ');
    let value = input.bare_item()?;
    input.parameters()?;
    input.skip(|byte| byte == b' ');
    match input.0 {
        [] => Ok(value),
        _ => Err(NotStructured),
    }
}

/// The rest of a field.
struct Input<'f>(&'f [u8]);

impl<'f> Input<'f> {
    fn eat(&mut self, byte: u8) -> bool {
        match self.0 {
            [first, rest @ ..] if *first == byte => {
                self.0 = rest;
                true
            }
            _ => false,
        }
    }

    fn expect(&mut self, byte: u8) -> Result<(), NotStructured> {
        self.eat(byte).then_some(()).ok_or(NotStructured)
    }

    /// Takes all bytes at the front for which `is_part` holds.
    fn skip(&mut self, is_part: impl Fn(u8) -> bool) -> &'f [u8] {
        let len = self.0.iter().position(|&byte| !is_part(byte));
        let (taken, rest) = self.0.split_at(len.unwrap_or(self.0.len()));
        self.0 = rest;
        taken
    }

    /// Section 4.2.3.3.
    fn key(&mut self) -> Result<&'f [u8], NotStructured> {
        match self.0.first() {
            Some(b'a'..=b'z' | b'*') => Ok(self.skip(
                |byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'.' | b'*'),
            )),
            _ => Err(NotStructured),
        }
    }

    /// Section 4.2.3.2.
    fn parameters(&mut self) -> Result<(), NotStructured> {
        while self.eat(b';') {
            self.skip(|byte| byte == b' ');
            self.key()?;
            if self.eat(b'=') {
                self.bare_item()?;
            }
        }
        Ok(())
    }

    /// Section 4.2.1.2, without the parameters of the list itself.
    fn inner_list(&mut self) -> Result<Value<'f>, NotStructured> {
        self.expect(b'(')?;
        loop {
            self.skip(|byte| byte == b' ');
            if self.eat(b')') {
                return Ok(Value::Other);
            }
            self.bare_item()?;
            self.parameters()?;
            if !matches!(self.0.first(), Some(b' ' | b')')) {
                return Err(NotStructured);
            }
        }
    }

    /// Section 4.2.3.1.
    fn bare_item(&mut self) -> Result<Value<'f>, NotStructured> {
        let first = *self.0.first().ok_or(NotStructured)?;
        match first {
            b'-' | b'0'..=b'9' => self.number(),
            b'?' => {
                let (flag, rest) = match self.0 {
                    [_, b'0', rest @ ..] => (false, rest),
                    [_, b'1', rest @ ..] => (true, rest),
                    _ => return Err(NotStructured),
                };
                self.0 = rest;
                Ok(Value::Boolean(flag))
            }
            b':' => self.binary(),
            b'"' => self.string(),
            b'A'..=b'Z' | b'a'..=b'z' | b'*' => {
                self.skip(is_token);
                Ok(Value::Other)
            }
            b'@' => {
                self.0 = &self.0[1..];
                match self.number()? {
                    Value::Integer(_) => Ok(Value::Other),
                    _ => Err(NotStructured),
                }
            }
            b'%' => self.display_string(),
            _ => Err(NotStructured),
        }
    }

    /// Section 4.2.4.
    fn number(&mut self) -> Result<Value<'f>, NotStructured> {
        let is_negative = self.eat(b'-');
        let digits = self.skip(|byte| byte.is_ascii_digit());
        if digits.is_empty() || digits.len() > 15 {
            return Err(NotStructured);
        }
        if self.eat(b'.') {
            let fraction = self.skip(|byte| byte.is_ascii_digit());
            let is_decimal = digits.len() <= 12 && (1..=3).contains(&fraction.len());
            return is_decimal.then_some(Value::Other).ok_or(NotStructured);
        }
        let of = |number, &digit: &u8| number * 10 + i64::from(digit - b'0');
        let number = digits.iter().fold(0, of);
        Ok(Value::Integer(if is_negative { -number } else { number }))
    }

    /// Section 4.2.5.
    fn string(&mut self) -> Result<Value<'f>, NotStructured> {
        self.expect(b'"')?;
        loop {
            self.skip(|byte| matches!(byte, 0x20..=0x7e) && byte != b'"' && byte != b'\\');
            match self.0 {
                [b'"', rest @ ..] => {
                    self.0 = rest;
                    return Ok(Value::Other);
                }
                [b'\\', b'"' | b'\\', rest @ ..] => self.0 = rest,
                _ => return Err(NotStructured),
            }
        }
    }

    /// Section 4.2.7. Padding may be missing, but has to be at the end.
    fn binary(&mut self) -> Result<Value<'f>, NotStructured> {
        self.expect(b':')?;
        let text = self.skip(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte));
        self.expect(b':')?;
        let len = text.iter().position(|&byte| byte == b'=');
        let padding = &text[len.unwrap_or(text.len())..];
        // One digit holds six bits, less than a byte.
        let is_whole = (text.len() - padding.len()) % 4 != 1;
        match padding {
            [] | [b'='] | [b'=', b'='] if is_whole => Ok(Value::Binary(text)),
            _ => Err(NotStructured),
        }
    }

    /// Section 4.2.10.
    fn display_string(&mut self) -> Result<Value<'f>, NotStructured> {
        self.expect(b'%')?;
        self.expect(b'"')?;
        let mut text = Vec::new();
        loop {
            let plain = |byte| matches!(byte, 0x20..=0x7e) && byte != b'"' && byte != b'%';
            text.extend_from_slice(self.skip(plain));
            match self.0 {
                [b'"', rest @ ..] => {
                    self.0 = rest;
                    let is_text = std::str::from_utf8(&text).is_ok();
                    return is_text.then_some(Value::Other).ok_or(NotStructured);
                }
                [b'%', high, low, rest @ ..] => {
                    text.push(hex_digit(*high)? << 4 | hex_digit(*low)?);
                    self.0 = rest;
                }
                _ => return Err(NotStructured),
            }
        }
    }
}

const fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// `tchar`, `:` or `/` (section 4.2.6).
const fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'!' | b'#'
                | b'$'
                | b'%'
                | b'&'
                | b'\''
                | b'*'
                | b'+'
                | b'-'
                | b'.'
                | b'^'
                | b'_'
                | b'`'
                | b'|'
                | b'~'
                | b':'
                | b'/'
        )
}

const fn hex_digit(byte: u8) -> Result<u8, NotStructured> {
    match byte {
        b'0'..=b'9' => Ok(byte - b'0'),
        b'a'..=b'f' => Ok(byte - b'a' + 10),
        _ => Err(NotStructured),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The members of a dictionary, or none.
    fn members(field: &str) -> Option<String> {
        let mut text = String::new();
        dictionary(field.as_bytes(), |key, value| {
            text += &format!("{}={value:?};", key.escape_ascii());
        })
        .ok()?;
        Some(text)
    }

    #[test]
    fn dictionaries() {
        let check = |field: &str, expect: &str| {
            assert_eq!(members(field).as_deref(), Some(expect), "{field:?}");
        };
        check("", "");
        check("  ", "");
        check(" a ", "a=Boolean(true);");
        check("a=?0 \t,\tb=-12", "a=Boolean(false);b=Integer(-12);");
        check("a;x=1;y, b;z", "a=Boolean(true);b=Boolean(true);");
        check("a=(1 \"),b=2\" x);y=?1, c=3", "a=Other;c=Integer(3);");
        check("a=( ), *b=tok/en:x", "a=Other;*b=Other;");
        check("a=\"\\\\\\\"\", b=1.5, c=@5", "a=Other;b=Other;c=Other;");
        check("a=%\"%c3%a9\"", "a=Other;");
        check("a=999999999999999", "a=Integer(999999999999999);");
        let field = "a=:YQ==:, b=:YQ:, c=::";
        let expect = "a=Binary([89, 81, 61, 61]);b=Binary([89, 81]);c=Binary([]);";
        check(field, expect);
    }

    #[test]
    fn a_fault_anywhere_is_one_of_the_whole_field() {
        for field in [
            ",",
            "a,",
            "a,,b",
            "a b",
            "A",
            "a=",
            "a= 1",
            "=1",
            "a;",
            "a;=1",
            "\ta",
            "1",
            "a=1.",
            "a=1.1234",
            "a=1234567890123.1",
            "a=1234567890123456",
            "a=-",
            "a=?2",
            "a=?",
            "a=\"",
            "a=\"\\n\"",
            "a=\"\u{e9}\"",
            "a=:a:",
            "a=:YQ=a:",
            "a=:YQ===:",
            "a=:Y Q:",
            "a=:YQ",
            "a=(1",
            "a=(1,2)",
            "a=(1\"x\")",
            "a=@1.5",
            "a=@x",
            "a=%",
            "a=%\"%C3\"",
            "a=%\"%ff\"",
            "a=%\"%f\"",
            "a=%\"",
            "a=!",
            "a=b\u{0}",
        ] {
            assert_eq!(members(field), None, "{field:?}");
        }
    }

    #[test]
    fn items() {
        assert_eq!(item(b" 5;a "), Ok(Value::Integer(5)));
        assert_eq!(item(b":YQ==:"), Ok(Value::Binary(b"YQ==")));
        for field in ["", " ", "5 6", "5,", "(5)"] {
            assert_eq!(item(field.as_bytes()), Err(NotStructured), "{field:?}");
        }
    }
}
