//! Where Python's buffers meet slices.

use pyo3::{
    buffer::PyUntypedBuffer,
    create_exception,
    exceptions::{PyException, PyValueError},
    prelude::*,
    types::PyBytes,
};

use crate::error::Error;

create_exception!(
    rockmq._core,
    StoreError,
    PyException,
    "A store directory that can't be opened or a file operation that failed; the text names the file."
);

create_exception!(
    rockmq._core,
    StoreFull,
    StoreError,
    "A write found no room on its disk; the text names the file. What was there before is as it was."
);

impl From<Error> for PyErr {
    fn from(error: Error) -> Self {
        match error {
            Error::Store(text) => StoreError::new_err(text),
            Error::Full(text) => StoreFull::new_err(text),
            Error::Value(text) => PyValueError::new_err(text),
        }
    }
}

/// The bytes of any object with the buffer protocol. The owner of a mutable buffer must leave it alone until the call
/// that was given it returns; its size can't change meanwhile, the export keeps it.
pub enum Bytes<'a, 'py> {
    Bytes(&'a Bound<'py, PyBytes>),
    Buffer(PyUntypedBuffer),
}

impl<'a, 'py> Bytes<'a, 'py> {
    pub fn of(object: &'a Bound<'py, PyAny>) -> PyResult<Self> {
        if let Ok(bytes) = object.cast::<PyBytes>() {
            return Ok(Self::Bytes(bytes));
        }
        contiguous(PyUntypedBuffer::get(object)?).map(Self::Buffer)
    }

    pub fn as_slice(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes.as_bytes(),
            Self::Buffer(buffer) => slice_of(buffer),
        }
    }
}

pub fn contiguous(buffer: PyUntypedBuffer) -> PyResult<PyUntypedBuffer> {
    if !buffer.is_c_contiguous() {
        return Err(PyValueError::new_err("the buffer is not contiguous"));
    }
    Ok(buffer)
}

/// The bytes of a contiguous buffer.
pub fn slice_of(buffer: &PyUntypedBuffer) -> &[u8] {
    if buffer.len_bytes() == 0 || !buffer.is_c_contiguous() {
        return &[];
    }
    // SAFETY: a contiguous export of len_bytes bytes at buf_ptr, which its owner may neither free nor resize before the
    // buffer is released, which its borrow here outlives. We hold the GIL and run no Python between reading two bytes that
    // depend on each other: every slice is checked against its length, not against its content.
    unsafe { std::slice::from_raw_parts(buffer.buf_ptr().cast(), buffer.len_bytes()) }
}
