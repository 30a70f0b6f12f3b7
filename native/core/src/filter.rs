//! A SQL92 filter (the expressions of Apache's filter module), evaluated over the properties of a stored message.
//!
//! What comes from `rockmq/filter/sql.py` is a program for a machine with a stack. All values of properties are text, which
//! becomes a number where it is compared with one, and what can't be compared is an error that makes the whole an error, as
//! an exception does in Java. Here it is a value like any other: evaluation has no effect but its result, so it doesn't
//! matter that both sides are evaluated where Java would have stopped at the first.

use std::cmp::Ordering;

use pyo3::{exceptions::PyValueError, prelude::*, types::PyBool};
use smallvec::SmallVec;

use crate::{properties, python::Bytes};

/// What one evaluation costs, in about the time of one instruction, for this many bytes of properties.
const BYTES_PER_INSTRUCTION: usize = 16;

#[pyclass(frozen, module = "rockmq._core")]
pub struct Filter {
    code: Vec<Instruction>,
    /// The properties it names, the shortest first: most others are told from them by length.
    names: Vec<Box<[u8]>>,
    /// Instructions that read all of a value.
    readers: usize,
}

enum Instruction {
    /// Push the property of that number.
    Property(usize),
    Constant(Constant),
    Compare(Comparison),
    Between,
    NotBetween,
    /// Whether a text is one of these, which are sorted.
    In(Vec<Box<[u8]>>),
    /// Whether a text is in another; or, with false, whether it isn't.
    Search(Place, Box<str>, bool),
    Negate,
    Not,
    /// What a property says where a condition is expected.
    Condition,
    And,
    Or,
    /// Jump over as many instructions if what is on the stack decides an AND, or an OR.
    AndSkip(usize),
    OrSkip(usize),
}

enum Constant {
    Null,
    Boolean(bool),
    Int(i32),
    Long(i64),
    Double(f64),
    Text(Box<str>),
}

#[derive(Clone, Copy)]
enum Comparison {
    Equal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

#[derive(Clone, Copy)]
enum Place {
    Anywhere,
    Start,
    End,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Value<'v> {
    Error,
    Null,
    Boolean(bool),
    Int(i32),
    Long(i64),
    Double(f64),
    Text(&'v [u8]),
}

#[derive(FromPyObject)]
enum Operand {
    Text(String),
    Number(i64),
    Double(f64),
}

#[pymethods]
impl Filter {
    #[new]
    fn new(program: Vec<(String, Bound<'_, PyAny>)>) -> PyResult<Self> {
        let mut names: Vec<Box<[u8]>> = Vec::new();
        for (name, operand) in &program {
            if name == "property" {
                names.push(operand.extract::<String>()?.into_bytes().into());
            }
        }
        names.sort_unstable_by(|one, other| by_length(one, other));
        names.dedup();
        let code: Vec<_> =
            program.iter().map(|(name, operand)| instruction(name, operand, &names)).collect::<PyResult<_>>()?;
        check(&code).map_err(PyValueError::new_err)?;
        let reads = |each: &&Instruction| {
            use Instruction::{Between, Compare, Condition, In, Negate, NotBetween, Search};
            matches!(each, Compare(_) | Between | NotBetween | In(_) | Search(..) | Negate | Condition)
        };
        let readers = code.iter().filter(reads).count();
        Ok(Self { code, names, readers })
    }

    #[pyo3(name = "matches")]
    fn matches_python(&self, properties: &Bound<'_, PyAny>) -> PyResult<bool> {
        Ok(self.matches(Bytes::of(properties)?.as_slice()))
    }
}

#[inline]
fn by_length(one: &[u8], other: &[u8]) -> Ordering {
    one.len().cmp(&other.len()).then_with(|| one.cmp(other))
}

fn instruction(name: &str, operand: &Bound<'_, PyAny>, names: &[Box<[u8]>]) -> PyResult<Instruction> {
    use Instruction::*;
    let search =
        |place, wanted| -> PyResult<Instruction> { Ok(Search(place, operand.extract::<String>()?.into(), wanted)) };
    Ok(match name {
        "property" => {
            let name = operand.extract::<String>()?.into_bytes();
            Property(names.binary_search_by(|each| by_length(each, &name)).unwrap_or_default())
        }
        "constant" => Constant(constant(operand)?),
        "=" => Compare(Comparison::Equal),
        "<" => Compare(Comparison::Less),
        "<=" => Compare(Comparison::LessOrEqual),
        ">" => Compare(Comparison::Greater),
        ">=" => Compare(Comparison::GreaterOrEqual),
        "between" => Between,
        "not between" => NotBetween,
        "in" => {
            let mut texts: Vec<Box<[u8]>> =
                operand.extract::<Vec<String>>()?.into_iter().map(|text| text.into_bytes().into()).collect();
            texts.sort_unstable();
            In(texts)
        }
        "contains" => return search(Place::Anywhere, true),
        "not contains" => return search(Place::Anywhere, false),
        "startswith" => return search(Place::Start, true),
        "not startswith" => return search(Place::Start, false),
        "endswith" => return search(Place::End, true),
        "not endswith" => return search(Place::End, false),
        "negate" => Negate,
        "not" => Not,
        "condition" => Condition,
        "and" => And,
        "or" => Or,
        "and skip" => AndSkip(operand.extract()?),
        "or skip" => OrSkip(operand.extract()?),
        _ => return Err(PyValueError::new_err(format!("no instruction {name:?}"))),
    })
}

fn constant(operand: &Bound<'_, PyAny>) -> PyResult<Constant> {
    if operand.is_none() {
        return Ok(Constant::Null);
    }
    if operand.is_instance_of::<PyBool>() {
        return Ok(Constant::Boolean(operand.extract()?));
    }
    Ok(match operand.extract()? {
        Operand::Text(text) => Constant::Text(text.into()),
        Operand::Number(number) => i32::try_from(number).map_or(Constant::Long(number), Constant::Int),
        Operand::Double(number) => Constant::Double(number),
    })
}

/// Whether every instruction finds its operands, no jump leads out, and one value is left.
fn check(code: &[Instruction]) -> Result<(), String> {
    let mut height = 0;
    for (at, instruction) in code.iter().enumerate() {
        let (takes, gives) = match instruction {
            Instruction::Property(_) | Instruction::Constant(_) => (0, 1),
            Instruction::Compare(_) | Instruction::And | Instruction::Or => (2, 1),
            Instruction::Between | Instruction::NotBetween => (3, 1),
            Instruction::AndSkip(count) | Instruction::OrSkip(count) if *count >= code.len() - at => {
                return Err(format!("instruction {at} jumps out of the program"));
            }
            _ => (1, 1),
        };
        if height < takes {
            return Err(format!("instruction {at} finds {height} of {takes} operands"));
        }
        height = height - takes + gives;
    }
    if height == 1 {
        Ok(())
    } else {
        Err(format!("{height} values are left, not one"))
    }
}

impl Filter {
    /// Whether it is true for a message with these properties: neither false, nor null, nor an error.
    pub fn matches(&self, properties: &[u8]) -> bool {
        let mut found: SmallVec<[Value<'_>; 8]> = SmallVec::from_elem(Value::Null, self.names.len());
        for (name, value) in properties::items(properties) {
            if let Ok(number) = self.names.binary_search_by(|each| by_length(each, name)) {
                found[number] = Value::Text(value);
            }
        }
        self.evaluate(&found) == Value::Boolean(true)
    }

    /// About how many instructions' time it takes.
    pub fn cost(&self, properties: &[u8]) -> usize {
        self.code.len() + (1 + self.readers) * properties.len() / BYTES_PER_INSTRUCTION
    }

    fn evaluate<'v>(&'v self, found: &[Value<'v>]) -> Value<'v> {
        let mut stack: SmallVec<[Value<'v>; 16]> = SmallVec::new();
        let mut at = 0;
        while let Some(instruction) = self.code.get(at) {
            at += 1;
            // `check` has seen to it that the stack is never too low.
            let mut pop = || stack.pop().unwrap_or(Value::Error);
            let value = match instruction {
                Instruction::Property(number) => found[*number],
                Instruction::Constant(constant) => constant.value(),
                Instruction::Compare(comparison) => {
                    let (right, left) = (pop(), pop());
                    comparison.of(left, right)
                }
                Instruction::Between => {
                    let (high, low, value) = (pop(), pop(), pop());
                    and(Comparison::GreaterOrEqual.of(value, low), Comparison::LessOrEqual.of(value, high))
                }
                Instruction::NotBetween => {
                    let (high, low, value) = (pop(), pop(), pop());
                    or(Comparison::Less.of(value, low), Comparison::Greater.of(value, high))
                }
                Instruction::In(texts) => match pop() {
                    Value::Error => Value::Error,
                    Value::Text(text) => Value::Boolean(texts.binary_search_by(|each| (**each).cmp(text)).is_ok()),
                    _ => Value::Null,
                },
                Instruction::Search(place, pattern, wanted) => search(pop(), *place, pattern, *wanted),
                Instruction::Negate => match pop() {
                    Value::Error => Value::Error,
                    Value::Int(number) => Value::Int(number.wrapping_neg()),
                    Value::Long(number) => Value::Long(number.wrapping_neg()),
                    Value::Double(number) => Value::Double(-number),
                    _ => Value::Null,
                },
                Instruction::Not => match pop() {
                    Value::Boolean(value) => Value::Boolean(!value),
                    other => other,
                },
                Instruction::Condition => match pop() {
                    value @ (Value::Error | Value::Null | Value::Boolean(_)) => value,
                    _ => Value::Boolean(false),
                },
                Instruction::And => {
                    let (right, left) = (pop(), pop());
                    and(left, right)
                }
                Instruction::Or => {
                    let (right, left) = (pop(), pop());
                    or(left, right)
                }
                Instruction::AndSkip(count) => {
                    let left = pop();
                    if matches!(left, Value::Boolean(false) | Value::Error) {
                        at += count;
                    }
                    left
                }
                Instruction::OrSkip(count) => {
                    let left = pop();
                    if matches!(left, Value::Boolean(true) | Value::Error) {
                        at += count;
                    }
                    left
                }
            };
            stack.push(value);
        }
        stack.pop().unwrap_or(Value::Error)
    }
}

impl Constant {
    fn value(&self) -> Value<'_> {
        match self {
            Self::Null => Value::Null,
            Self::Boolean(value) => Value::Boolean(*value),
            Self::Int(number) => Value::Int(*number),
            Self::Long(number) => Value::Long(*number),
            Self::Double(number) => Value::Double(*number),
            Self::Text(text) => Value::Text(text.as_bytes()),
        }
    }
}

fn and<'v>(left: Value<'v>, right: Value<'v>) -> Value<'v> {
    match (left, right) {
        (Value::Error, _) => Value::Error,
        (Value::Boolean(false), _) => Value::Boolean(false),
        (_, Value::Error) => Value::Error,
        (_, Value::Boolean(false)) => Value::Boolean(false),
        (Value::Boolean(true), Value::Boolean(true)) => Value::Boolean(true),
        _ => Value::Null,
    }
}

fn or<'v>(left: Value<'v>, right: Value<'v>) -> Value<'v> {
    match (left, right) {
        (Value::Error, _) => Value::Error,
        (Value::Boolean(true), _) => Value::Boolean(true),
        (_, Value::Error) => Value::Error,
        (_, Value::Boolean(true)) => Value::Boolean(true),
        (Value::Boolean(false), Value::Boolean(false)) => Value::Boolean(false),
        _ => Value::Null,
    }
}

fn search<'v>(value: Value<'v>, place: Place, pattern: &str, wanted: bool) -> Value<'v> {
    if pattern.is_empty() {
        return Value::Boolean(false); // whatever the other side is, an error too
    }
    let text = match value {
        Value::Error => return Value::Error,
        Value::Text(text) => text,
        _ => return Value::Boolean(false),
    };
    let found = match place {
        Place::Anywhere => String::from_utf8_lossy(text).contains(pattern),
        Place::Start => text.starts_with(pattern.as_bytes()),
        Place::End => text.ends_with(pattern.as_bytes()),
    };
    Value::Boolean(found == wanted)
}

impl Comparison {
    #[inline]
    fn of<'v>(self, left: Value<'v>, right: Value<'v>) -> Value<'v> {
        let order = match self {
            Self::Equal => match (left, right) {
                (Value::Error, _) | (_, Value::Error) => return Value::Error,
                (Value::Null, Value::Null) => return Value::Boolean(true),
                (Value::Null, _) => return Value::Null,
                (_, Value::Null) => return Value::Boolean(false),
                _ => order(left, right),
            },
            _ => match (left, right) {
                // Java looks at the right side only when there is a left one.
                (Value::Error, _) => return Value::Error,
                (Value::Null, _) => return Value::Null,
                (_, Value::Error) => return Value::Error,
                (_, Value::Null) => return Value::Null,
                (Value::Text(left), Value::Text(right)) => {
                    double(left).zip(double(right)).map(|(left, right)| order_of_doubles(left, right))
                }
                _ => order(left, right),
            },
        };
        order.map_or(Value::Error, |order| {
            Value::Boolean(match self {
                Self::Equal => order.is_eq(),
                Self::Less => order.is_lt(),
                Self::LessOrEqual => order.is_le(),
                Self::Greater => order.is_gt(),
                Self::GreaterOrEqual => order.is_ge(),
            })
        })
    }
}

/// ComparisonExpression.__compare: None where it throws; less where it finds two of a kind that have no order.
#[inline]
fn order(left: Value<'_>, right: Value<'_>) -> Option<Ordering> {
    use Value::{Boolean, Double, Int, Long, Text};
    Some(match (left, right) {
        (Int(left), Int(right)) => left.cmp(&right),
        (Text(left), Int(right)) => i32::try_from(long(left)?).ok()?.cmp(&right),
        (Int(left), Text(right)) => left.cmp(&i32::try_from(long(right)?).ok()?),
        (Text(left), Text(right)) => left.cmp(right),
        (Int(left), Long(right)) => i64::from(left).cmp(&right),
        (Long(left), Int(right)) => left.cmp(&i64::from(right)),
        (Long(left), Long(right)) => left.cmp(&right),
        (Text(left), Long(right)) => long(left)?.cmp(&right),
        (Long(left), Text(right)) => left.cmp(&long(right)?),
        (Double(left), Double(right)) => order_of_doubles(left, right),
        (Int(left), Double(right)) => order_of_doubles(f64::from(left), right),
        (Double(left), Int(right)) => order_of_doubles(left, f64::from(right)),
        (Long(left), Double(right)) => order_of_doubles(left as f64, right),
        (Double(left), Long(right)) => order_of_doubles(left, right as f64),
        (Text(left), Double(right)) => order_of_doubles(double(left)?, right),
        (Double(left), Text(right)) => order_of_doubles(left, double(right)?),
        (Boolean(left), Boolean(right)) => left.cmp(&right),
        (Text(left), Boolean(right)) => left.eq_ignore_ascii_case(b"true").cmp(&right),
        (Boolean(_), Text(_)) => return None,
        _ => Ordering::Less,
    })
}

/// `Double.compare`: 0.0 is over -0.0, and NaN over all.
fn order_of_doubles(left: f64, right: f64) -> Ordering {
    left.partial_cmp(&right).filter(|order| order.is_ne()).unwrap_or_else(|| match (left.is_nan(), right.is_nan()) {
        (false, false) => right.is_sign_negative().cmp(&left.is_sign_negative()),
        (left, right) => left.cmp(&right),
    })
}

/// `Long.valueOf`; an Integer is one in its range.
fn long(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text.split_first()? {
        (b'-', rest) => (true, rest),
        (b'+', rest) => (false, rest),
        _ => (false, text),
    };
    if digits.is_empty() {
        return None;
    }
    // Downwards, where there is one more.
    let mut number = 0i64;
    let mut add = |digit: u32| {
        number = number.checked_mul(10)?.checked_sub(i64::from(digit))?;
        Some(())
    };
    if digits.is_ascii() {
        digits.iter().try_for_each(|&byte| add(char::from(byte).to_digit(10)?))?;
    } else {
        std::str::from_utf8(digits).ok()?.chars().try_for_each(|char| add(digit(char)?))?;
    }
    if negative {
        Some(number)
    } else {
        number.checked_neg()
    }
}

/// The zeros that ten digits begin with in Unicode's basic plane, all of which Java takes.
const ZEROS: [u32; 37] = [
    0x0030, 0x0660, 0x06F0, 0x07C0, 0x0966, 0x09E6, 0x0A66, 0x0AE6, 0x0B66, 0x0BE6, 0x0C66, 0x0CE6, 0x0D66, 0x0DE6,
    0x0E50, 0x0ED0, 0x0F20, 0x1040, 0x1090, 0x17E0, 0x1810, 0x1946, 0x19D0, 0x1A80, 0x1A90, 0x1B50, 0x1BB0, 0x1C40,
    0x1C50, 0xA620, 0xA8D0, 0xA900, 0xA9D0, 0xA9F0, 0xAA50, 0xABF0, 0xFF10,
];

fn digit(char: char) -> Option<u32> {
    let char = u32::from(char);
    let before = ZEROS.partition_point(|&zero| zero <= char).checked_sub(1)?;
    Some(char - ZEROS[before]).filter(|&digit| digit < 10)
}

/// `Double.valueOf`, but for hexadecimal text.
fn double(text: &[u8]) -> Option<f64> {
    let is_blank = |byte: &u8| *byte <= b' ';
    let start = text.iter().position(|byte| !is_blank(byte))?;
    let end = text.iter().rposition(|byte| !is_blank(byte))? + 1;
    let text = &text[start..end];
    let (negative, text) = match text.split_first()? {
        (b'-', rest) => (true, rest),
        (b'+', rest) => (false, rest),
        _ => (false, text),
    };
    let size = match text {
        b"NaN" => return Some(f64::NAN),
        b"Infinity" => f64::INFINITY,
        _ => decimal(text)?,
    };
    Some(if negative { -size } else { size })
}

/// Digits with a point among them, or none, an exponent and one of `fFdD`, which says nothing.
fn decimal(text: &[u8]) -> Option<f64> {
    let text = match text.split_last() {
        Some((b'f' | b'F' | b'd' | b'D', rest)) => rest,
        _ => text,
    };
    // What is left is Rust's own form of a number, if it has a digit and no letter but the exponent's.
    if !text.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-')) {
        return None;
    }
    if !matches!(text.first()?, b'0'..=b'9' | b'.') {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_javas() {
        let long = |text: &str| super::long(text.as_bytes());
        assert_eq!(long("-9223372036854775808"), Some(i64::MIN));
        assert_eq!(long("9223372036854775808"), None);
        assert_eq!((long("+007"), long("-0"), long("٣４")), (Some(7), Some(0), Some(34)));
        for text in ["", "+", "-", " 5", "5 ", "5.0", "--5", "1_0", "𝟗", "½"] {
            assert_eq!(long(text), None, "{text:?}");
        }
        let double = |text: &str| super::double(text.as_bytes());
        for (text, number) in
            [(" 5\t", 5.0), ("5.", 5.0), (".5", 0.5), ("-5e-1f", -0.5), ("+1E2D", 100.0), ("1e999", f64::INFINITY)]
        {
            assert_eq!(double(text), Some(number), "{text:?}");
        }
        assert!(double("-NaN").is_some_and(f64::is_nan));
        assert_eq!(double("-Infinity"), Some(f64::NEG_INFINITY));
        for text in
            ["", " ", ".", "e5", "5e", "+-5", "inf", "nan", "infinity", "5ff", "5df", "0x10", "1_0", "NaNd", "٣"]
        {
            assert_eq!(double(text), None, "{text:?}");
        }
    }

    #[test]
    fn doubles_have_an_order() {
        let sorted = [f64::NEG_INFINITY, -1.0, -0.0, 0.0, 1.0, f64::INFINITY, f64::NAN];
        for (left, a) in sorted.iter().enumerate() {
            for (right, b) in sorted.iter().enumerate() {
                assert_eq!(order_of_doubles(*a, *b), left.cmp(&right), "{a} {b}");
            }
        }
        assert_eq!(order_of_doubles(-f64::NAN, f64::NAN), Ordering::Equal);
    }
}
