//! A SQL92 filter (the expressions of Apache's filter module), evaluated over the properties of a stored message.
//!
//! What comes from `rockmq/filter/sql.py` is a program for a machine with a stack. All values of properties are text, which
//! becomes a number where it is compared with one, and what can't be compared is an error that makes the whole an error, as
//! an exception does in Java. Here it is a value like any other: evaluation has no effect but its result, so it doesn't
//! matter that both sides are evaluated where Java would have stopped at the first.
//!
//! Before it runs, properties and constants are put into the instructions that use them, so that what is on the stack is
//! only what conditions have come to.

use std::cmp::Ordering;

use pyo3::{exceptions::PyValueError, prelude::*, types::PyBool};
use smallvec::SmallVec;

use crate::{
    json::find_either,
    properties::{self, NAME_END},
    python::Bytes,
};

/// What one evaluation costs, in about the time of one instruction, for this many bytes of properties.
const BYTES_PER_INSTRUCTION: usize = 16;

/// So many names are tried one after the other, which for a few is quicker than to look for the end of what is there.
const NAMES_TRIED: usize = 4;

#[pyclass(frozen, module = "rockmq._core")]
pub struct Filter {
    code: Vec<Instruction>,
    /// The properties it names, the shortest first: most others are told from them by length.
    names: Vec<Box<[u8]>>,
    /// Whether a name begins with a byte.
    firsts: [bool; 256],
    /// Instructions that read all of a value.
    readers: usize,
    /// How many results are on the stack at most.
    depth: usize,
}

enum Instruction {
    Push(Truth),
    Compare(Comparison, Operand, Operand),
    /// Whether a value is within two others; or, with false, whether it isn't.
    Between(Operand, Operand, Operand, bool),
    /// Whether a text is one of these, which are sorted.
    In(Operand, Vec<Box<[u8]>>),
    /// Whether a text is in another; or, with false, whether it isn't.
    Search(Operand, Place, Box<str>, bool),
    /// What a value says where a condition is expected.
    Condition(Operand),
    /// Of a condition, which has no negative.
    Negate,
    Not,
    And,
    Or,
    /// Jump over as many instructions if what is on the stack decides an AND, or an OR.
    AndSkip(usize),
    OrSkip(usize),
}

enum Operand {
    Property(usize),
    Int(i32),
    Long(i64),
    Double(f64),
    Text(Box<str>),
    /// What is on the stack.
    Result,
}

/// What a condition has come to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Truth {
    Error,
    Null,
    False,
    True,
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
enum Constant {
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
        let mut firsts = [false; 256];
        names.iter().filter_map(|name| name.first()).for_each(|&first| firsts[usize::from(first)] = true);
        let compiler =
            Compiler { names: &names, code: Vec::new(), operands: Vec::new(), depth: 0, at: 0, count: program.len() };
        let (code, depth) = compiler.compile(&program)?;
        let reads = |each: &&Instruction| {
            use Instruction::{Between, Compare, Condition, In, Search};
            matches!(each, Compare(..) | Between(..) | In(..) | Search(..) | Condition(_))
        };
        let readers = code.iter().filter(reads).count();
        Ok(Self { code, names, firsts, readers, depth })
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

/// What an instruction of a program leaves on the stack.
enum Step {
    Value(Operand),
    Result(Instruction),
}

/// Goes through a program as it will run, to find the operands of each instruction.
struct Compiler<'n> {
    names: &'n [Box<[u8]>],
    code: Vec<Instruction>,
    /// What would be on the stack, and how much there was at most.
    operands: Vec<Operand>,
    depth: usize,
    /// The number of the instruction, and how many there are.
    at: usize,
    count: usize,
}

impl Compiler<'_> {
    fn compile(mut self, program: &[(String, Bound<'_, PyAny>)]) -> PyResult<(Vec<Instruction>, usize)> {
        // Where in the code each instruction of the program begins.
        let mut places = Vec::with_capacity(program.len() + 1);
        for (name, operand) in program {
            places.push(self.code.len());
            match self.step(name, operand)? {
                Step::Value(value) => self.operands.push(value),
                Step::Result(instruction) => {
                    self.code.push(instruction);
                    self.operands.push(Operand::Result);
                }
            }
            self.depth = self.depth.max(self.operands.len());
            self.at += 1;
        }
        places.push(self.code.len());
        for (place, instruction) in self.code.iter_mut().enumerate() {
            if let Instruction::AndSkip(target) | Instruction::OrSkip(target) = instruction {
                *target = places[*target] - place - 1;
            }
        }
        match &self.operands[..] {
            [Operand::Result] => Ok((self.code, self.depth)),
            [_] => Err(PyValueError::new_err("a value is left, not a condition")),
            left => Err(PyValueError::new_err(format!("{} values are left, not one", left.len()))),
        }
    }

    fn step(&mut self, name: &str, operand: &Bound<'_, PyAny>) -> PyResult<Step> {
        use Instruction::{And, AndSkip, Between, Compare, Condition, In, Negate, Not, Or, OrSkip, Push, Search};
        let comparison = match name {
            "=" => Some(Comparison::Equal),
            "<" => Some(Comparison::Less),
            "<=" => Some(Comparison::LessOrEqual),
            ">" => Some(Comparison::Greater),
            ">=" => Some(Comparison::GreaterOrEqual),
            _ => None,
        };
        if let Some(comparison) = comparison {
            let [left, right] = self.take()?;
            return Ok(Step::Result(Compare(comparison, left, right)));
        }
        let place = match name.strip_prefix("not ").unwrap_or(name) {
            "contains" => Some(Place::Anywhere),
            "startswith" => Some(Place::Start),
            "endswith" => Some(Place::End),
            _ => None,
        };
        if let Some(place) = place {
            let [value] = self.take()?;
            let pattern = operand.extract::<String>()?.into();
            return Ok(Step::Result(Search(value, place, pattern, !name.starts_with("not "))));
        }
        let instruction = match name {
            "property" => {
                let name = operand.extract::<String>()?.into_bytes();
                let number = self.names.binary_search_by(|each| by_length(each, &name)).unwrap_or_default();
                return Ok(Step::Value(Operand::Property(number)));
            }
            "constant" => return constant(operand),
            "between" | "not between" => {
                let [value, low, high] = self.take()?;
                Between(value, low, high, name == "between")
            }
            "in" => {
                let [value] = self.take()?;
                let texts = operand.extract::<Vec<String>>()?.into_iter();
                let mut texts: Vec<Box<[u8]>> = texts.map(|text| text.into_bytes().into()).collect();
                texts.sort_unstable();
                In(value, texts)
            }
            "negate" => match self.take()? {
                [Operand::Int(number)] => return Ok(Step::Value(Operand::Int(number.wrapping_neg()))),
                [Operand::Long(number)] => return Ok(Step::Value(Operand::Long(number.wrapping_neg()))),
                [Operand::Double(number)] => return Ok(Step::Value(Operand::Double(-number))),
                [Operand::Property(_) | Operand::Text(_)] => Push(Truth::Null),
                [Operand::Result] => Negate,
            },
            "condition" => {
                let [value] = self.take()?;
                Condition(value)
            }
            "not" => self.of_conditions::<1>(Not)?,
            "and" => self.of_conditions::<2>(And)?,
            "or" => self.of_conditions::<2>(Or)?,
            "and skip" | "or skip" => {
                let target = operand.extract::<usize>()?.saturating_add(self.at + 1);
                if target > self.count {
                    return Err(PyValueError::new_err(format!("instruction {} jumps out of the program", self.at)));
                }
                self.of_conditions::<1>(if name == "and skip" { AndSkip(target) } else { OrSkip(target) })?
            }
            _ => return Err(PyValueError::new_err(format!("no instruction {name:?}"))),
        };
        Ok(Step::Result(instruction))
    }

    /// The last operands.
    fn take<const N: usize>(&mut self) -> PyResult<[Operand; N]> {
        let found = self.operands.len();
        let taken = self.operands.split_off(found.saturating_sub(N));
        let error = |_| PyValueError::new_err(format!("instruction {} finds {found} of {N} operands", self.at));
        taken.try_into().map_err(error)
    }

    fn of_conditions<const N: usize>(&mut self, instruction: Instruction) -> PyResult<Instruction> {
        let is_value = |operand: &Operand| !matches!(operand, Operand::Result);
        if self.take::<N>()?.iter().any(is_value) {
            return Err(PyValueError::new_err(format!("instruction {} finds a value, not a condition", self.at)));
        }
        Ok(instruction)
    }
}

fn constant(operand: &Bound<'_, PyAny>) -> PyResult<Step> {
    if operand.is_none() {
        return Ok(Step::Result(Instruction::Push(Truth::Null)));
    }
    if operand.is_instance_of::<PyBool>() {
        return Ok(Step::Result(Instruction::Push(operand.extract::<bool>()?.into())));
    }
    Ok(Step::Value(match operand.extract()? {
        Constant::Text(text) => Operand::Text(text.into()),
        Constant::Number(number) => i32::try_from(number).map_or(Operand::Long(number), Operand::Int),
        Constant::Double(number) => Operand::Double(number),
    }))
}

impl Filter {
    /// Whether it is true for a message with these properties: neither false, nor null, nor an error.
    pub fn matches(&self, properties: &[u8]) -> bool {
        let mut found: SmallVec<[Option<&[u8]>; 8]> = SmallVec::from_elem(None, self.names.len());
        for segment in properties::segments(properties) {
            if !segment.first().is_some_and(|&first| self.firsts[usize::from(first)]) {
                continue;
            }
            let Some((number, value)) = self.named(segment) else { continue };
            if !value.is_empty() {
                found[number] = Some(value);
            }
        }
        self.evaluate(&found) == Truth::True
    }

    /// The number of the property that a segment holds, if an instruction names it, and its value.
    #[inline]
    fn named<'s>(&self, segment: &'s [u8]) -> Option<(usize, &'s [u8])> {
        if self.names.len() <= NAMES_TRIED {
            let holds = |name: &[u8]| segment.get(name.len()) == Some(&NAME_END) && segment.starts_with(name);
            let number = self.names.iter().position(|name| holds(name))?;
            return Some((number, &segment[self.names[number].len() + 1..]));
        }
        let name_end = find_either(segment, NAME_END, NAME_END)?;
        let number = self.names.binary_search_by(|each| by_length(each, &segment[..name_end])).ok()?;
        Some((number, &segment[name_end + 1..]))
    }

    /// About how many instructions' time it takes.
    pub fn cost(&self, properties: &[u8]) -> usize {
        self.code.len() + (1 + self.readers) * properties.len() / BYTES_PER_INSTRUCTION
    }

    fn evaluate(&self, found: &[Option<&[u8]>]) -> Truth {
        let mut results: SmallVec<[Truth; 16]> = SmallVec::from_elem(Truth::Null, self.depth);
        let mut stack = Stack { found, results: &mut results, count: 0 };
        let mut at = 0;
        while let Some(instruction) = self.code.get(at) {
            at += 1;
            let result = match instruction {
                Instruction::Push(truth) => *truth,
                Instruction::Compare(comparison, left, right) => {
                    let (right, left) = (stack.value(right), stack.value(left));
                    comparison.of(left, right)
                }
                Instruction::Between(value, low, high, wanted) => {
                    let (high, low, value) = (stack.value(high), stack.value(low), stack.value(value));
                    if *wanted {
                        and(Comparison::GreaterOrEqual.of(value, low), Comparison::LessOrEqual.of(value, high))
                    } else {
                        or(Comparison::Less.of(value, low), Comparison::Greater.of(value, high))
                    }
                }
                Instruction::In(value, texts) => match stack.value(value) {
                    Value::Error => Truth::Error,
                    Value::Text(text) => texts.binary_search_by(|each| (**each).cmp(text)).is_ok().into(),
                    _ => Truth::Null,
                },
                Instruction::Search(value, place, pattern, wanted) => {
                    search(stack.value(value), *place, pattern, *wanted)
                }
                Instruction::Condition(value) => match stack.value(value) {
                    Value::Error => Truth::Error,
                    Value::Null => Truth::Null,
                    Value::Boolean(value) => value.into(),
                    _ => Truth::False,
                },
                Instruction::Negate => match stack.pop() {
                    Truth::Error => Truth::Error,
                    _ => Truth::Null,
                },
                Instruction::Not => match stack.pop() {
                    Truth::False => Truth::True,
                    Truth::True => Truth::False,
                    other => other,
                },
                Instruction::And => {
                    let (right, left) = (stack.pop(), stack.pop());
                    and(left, right)
                }
                Instruction::Or => {
                    let (right, left) = (stack.pop(), stack.pop());
                    or(left, right)
                }
                Instruction::AndSkip(count) => {
                    let left = stack.pop();
                    if matches!(left, Truth::False | Truth::Error) {
                        at += count;
                    }
                    left
                }
                Instruction::OrSkip(count) => {
                    let left = stack.pop();
                    if matches!(left, Truth::True | Truth::Error) {
                        at += count;
                    }
                    left
                }
            };
            stack.push(result);
        }
        stack.pop()
    }
}

/// What an evaluation knows.
struct Stack<'v, 'r> {
    found: &'v [Option<&'v [u8]>],
    /// As many as there can be, of which the first `count` are on the stack. A program that jumps to where it has more or
    /// fewer of them isn't one that the parser makes: what it comes to is no use, but does no harm.
    results: &'r mut [Truth],
    count: usize,
}

impl<'v> Stack<'v, '_> {
    #[inline]
    fn push(&mut self, result: Truth) {
        if let Some(place) = self.results.get_mut(self.count) {
            *place = result;
            self.count += 1;
        }
    }

    #[inline]
    fn pop(&mut self) -> Truth {
        let Some(count) = self.count.checked_sub(1) else { return Truth::Error };
        self.count = count;
        self.results[count]
    }

    #[inline]
    fn value(&mut self, operand: &'v Operand) -> Value<'v> {
        match operand {
            Operand::Property(number) => self.found[*number].map_or(Value::Null, Value::Text),
            Operand::Int(number) => Value::Int(*number),
            Operand::Long(number) => Value::Long(*number),
            Operand::Double(number) => Value::Double(*number),
            Operand::Text(text) => Value::Text(text.as_bytes()),
            Operand::Result => match self.pop() {
                Truth::Error => Value::Error,
                Truth::Null => Value::Null,
                Truth::False => Value::Boolean(false),
                Truth::True => Value::Boolean(true),
            },
        }
    }
}

impl From<bool> for Truth {
    fn from(value: bool) -> Self {
        if value {
            Self::True
        } else {
            Self::False
        }
    }
}

fn and(left: Truth, right: Truth) -> Truth {
    match (left, right) {
        (Truth::Error, _) => Truth::Error,
        (Truth::False, _) => Truth::False,
        (_, Truth::Error) => Truth::Error,
        (_, Truth::False) => Truth::False,
        (Truth::True, Truth::True) => Truth::True,
        _ => Truth::Null,
    }
}

fn or(left: Truth, right: Truth) -> Truth {
    match (left, right) {
        (Truth::Error, _) => Truth::Error,
        (Truth::True, _) => Truth::True,
        (_, Truth::Error) => Truth::Error,
        (_, Truth::True) => Truth::True,
        (Truth::False, Truth::False) => Truth::False,
        _ => Truth::Null,
    }
}

fn search(value: Value<'_>, place: Place, pattern: &str, wanted: bool) -> Truth {
    if pattern.is_empty() {
        return Truth::False; // whatever the other side is, an error too
    }
    let text = match value {
        Value::Error => return Truth::Error,
        Value::Text(text) => text,
        _ => return Truth::False,
    };
    let found = match place {
        Place::Anywhere => String::from_utf8_lossy(text).contains(pattern),
        Place::Start => text.starts_with(pattern.as_bytes()),
        Place::End => text.ends_with(pattern.as_bytes()),
    };
    (found == wanted).into()
}

impl Comparison {
    #[inline]
    fn of(self, left: Value<'_>, right: Value<'_>) -> Truth {
        let order = match self {
            Self::Equal => match (left, right) {
                (Value::Error, _) | (_, Value::Error) => return Truth::Error,
                (Value::Null, Value::Null) => return Truth::True,
                (Value::Null, _) => return Truth::Null,
                (_, Value::Null) => return Truth::False,
                _ => order(left, right),
            },
            _ => match (left, right) {
                // Java looks at the right side only when there is a left one.
                (Value::Error, _) => return Truth::Error,
                (Value::Null, _) => return Truth::Null,
                (_, Value::Error) => return Truth::Error,
                (_, Value::Null) => return Truth::Null,
                (Value::Text(left), Value::Text(right)) => {
                    double(left).zip(double(right)).map(|(left, right)| order_of_doubles(left, right))
                }
                _ => order(left, right),
            },
        };
        order.map_or(Truth::Error, |order| {
            Truth::from(match self {
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
