//! Reads plain or gzip files of lines and fields, and keeps the position of every field for error messages.
//!
//! The readers of the formats interpret the fields.

use std::array;
use std::fmt;
use std::fs;
use std::io::{self, Read};
use std::path::Path;
use std::str::FromStr;

use flate2::read::MultiGzDecoder;

/// The reason why a trace cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read, or is truncated.
    #[error("cannot read {file}")]
    Unreadable {
        /// The path of the file.
        file: String,
        /// The I/O error.
        #[source]
        cause: io::Error,
    },
    /// A field is invalid. The whole file is rejected.
    #[error("{file}:{line}:{column}: {problem}")]
    Field {
        /// The path of the file.
        file: String,
        /// The line number, from 1.
        line: usize,
        /// The position of the field's first character in the line, from 1.
        column: usize,
        /// The problem with the field.
        problem: Problem,
    },
    /// The file has nothing to replay.
    #[error("{file} has no {what}")]
    Empty {
        /// The path of the file.
        file: String,
        /// The missing content.
        what: &'static str,
    },
}

/// The problem with a field or a line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The line has too few or too many fields.
    #[error("the line has {has} fields instead of {wants}")]
    Count {
        /// The number of fields.
        has: usize,
        /// The expected number of fields.
        wants: usize,
    },
    /// The header lacks a required column.
    #[error("the header has no column `{0}`")]
    NoColumn(&'static str),
    /// A field has the wrong type or is out of range.
    #[error("{name} is `{text}`, which is not {wants}")]
    Value {
        /// The column.
        name: &'static str,
        /// The text of the field.
        text: String,
        /// The expected type or range.
        wants: &'static str,
    },
    /// The line has a quoted field. None of the formats uses quotes.
    #[error("quoted fields are not supported")]
    Quoted,
}

/// The text of a file, and the file name for error messages.
#[derive(Clone, Debug)]
pub struct Source {
    name: String,
    text: String,
}

impl Source {
    /// Wraps a text in memory.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self { name: name.into(), text: text.into() }
    }

    /// Reads a file. A file with the gzip magic number is decompressed.
    ///
    /// Bytes that are not UTF-8 become replacement characters. Comments of old logs often have such bytes; in a number they
    /// cause a field error.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let name = path.display().to_string();
        let bytes = fs::read(path).and_then(|bytes| {
            let mut plain = Vec::new();
            if !bytes.starts_with(&[0x1f, 0x8b]) {
                return Ok(bytes);
            }
            MultiGzDecoder::new(bytes.as_slice()).read_to_end(&mut plain).map(|_| plain)
        });
        match bytes {
            Ok(bytes) => Ok(Self { name, text: String::from_utf8_lossy(&bytes).into_owned() }),
            Err(cause) => Err(Error::Unreadable { file: name, cause }),
        }
    }

    /// The name of the file.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn empty(&self, what: &'static str) -> Error {
        Error::Empty { file: self.name.clone(), what }
    }

    /// The lines that are not blank.
    pub(crate) fn lines(&self) -> impl Iterator<Item = Line<'_>> {
        let lines = self.text.lines().enumerate();
        lines.filter(|(_, text)| !text.trim().is_empty()).map(|(at, text)| Line {
            source: self,
            number: at + 1,
            text,
        })
    }

    /// The rows of a table with a header: the fields of `columns`, in this order. A missing column in `optional` gives empty
    /// fields.
    pub(crate) fn table<'s, const N: usize>(
        &'s self,
        columns: [&'static str; N],
        optional: &[&str],
    ) -> Result<impl Iterator<Item = Result<[Field<'s>; N], Error>>, Error> {
        let mut lines = self.lines();
        let header = lines.next().ok_or_else(|| self.empty("header"))?;
        let names = header.columns()?;
        let positions = columns.map(|name| names.iter().position(|(_, text)| *text == name));
        let missing =
            |(name, position): &(&&str, &Option<usize>)| position.is_none() && !optional.contains(*name);
        if let Some((name, _)) = columns.iter().zip(&positions).find(missing) {
            return Err(header.error(1, Problem::NoColumn(name)));
        }
        Ok(lines.map(move |line| {
            let fields = line.columns()?;
            if fields.len() != names.len() {
                return Err(line.error(1, Problem::Count { has: fields.len(), wants: names.len() }));
            }
            Ok(array::from_fn(|at| {
                let (column, text) = positions[at].map_or((1, ""), |position| fields[position]);
                Field { line, column, name: columns[at], text }
            }))
        }))
    }
}

/// One line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line<'s> {
    source: &'s Source,
    number: usize,
    pub(crate) text: &'s str,
}

impl<'s> Line<'s> {
    /// Splits the line at white space into fields with these names.
    pub(crate) fn words<const N: usize>(self, names: [&'static str; N]) -> Result<[Field<'s>; N], Error> {
        let words: Vec<_> = self.text.split_whitespace().collect();
        if words.len() != N {
            return Err(self.error(1, Problem::Count { has: words.len(), wants: N }));
        }
        Ok(array::from_fn(|at| {
            let column = self.column(words[at]);
            Field { line: self, column, name: names[at], text: words[at] }
        }))
    }

    /// Splits the line at commas, with the position of each part.
    fn columns(self) -> Result<Vec<(usize, &'s str)>, Error> {
        if let Some(quote) = self.text.find('"') {
            return Err(self.error(self.column(&self.text[quote..]), Problem::Quoted));
        }
        Ok(self.text.split(',').map(|text| (self.column(text), text.trim())).collect())
    }

    /// The position of the first character of a part of the line, from 1.
    fn column(self, part: &str) -> usize {
        let bytes = part.as_ptr() as usize - self.text.as_ptr() as usize;
        self.text[..bytes].chars().count() + 1
    }

    fn error(self, column: usize, problem: Problem) -> Error {
        Error::Field { file: self.source.name.clone(), line: self.number, column, problem }
    }
}

/// One field of a line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field<'s> {
    line: Line<'s>,
    column: usize,
    name: &'static str,
    pub(crate) text: &'s str,
}

impl Field<'_> {
    /// Parses an integer of type `T`.
    pub(crate) fn number<T: FromStr>(&self) -> Result<T, Error> {
        self.text.parse().map_err(|_| self.invalid("an integer in range"))
    }

    /// Parses seconds with an optional fraction, and returns microseconds.
    pub(crate) fn seconds(&self) -> Result<i64, Error> {
        micros(self.text).ok_or_else(|| self.invalid("a number of seconds"))
    }

    /// The error for a field that is not of the expected type or range.
    pub(crate) fn invalid(&self, wants: &'static str) -> Error {
        let problem = Problem::Value { name: self.name, text: self.text.to_owned(), wants };
        self.line.error(self.column, problem)
    }
}

impl fmt::Display for Field<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(f)
    }
}

/// Converts decimal seconds to microseconds, and truncates further digits.
fn micros(text: &str) -> Option<i64> {
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |digits| (true, digits));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !all_digits(whole) || !all_digits(fraction) {
        return None;
    }
    let fraction: i64 = format!("{fraction:0<6}")[..6].parse().ok()?;
    let micros = whole.parse::<i64>().ok()?.checked_mul(1_000_000)?.checked_add(fraction)?;
    Some(if negative { -micros } else { micros })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimal_seconds_parse_to_microseconds_and_other_texts_are_rejected() {
        let cases = [
            ("0", Some(0)),
            ("66.0", Some(66_000_000)),
            ("1.5", Some(1_500_000)),
            ("0.1234567", Some(123_456)),
            ("-1", Some(-1_000_000)),
            ("", None),
            (".5", None),
            ("1e3", None),
            ("1.2.3", None),
            ("99999999999999", None),
        ];
        for (text, expected) in cases {
            assert_eq!(micros(text), expected, "{text}");
        }
    }
}
