//! Memory that all workers share.
//!
//! NGINX's master reads the configuration and forks the workers. What it builds in a mapping that is shared with its
//! children, at the same address in all of them, is to the workers what an `Arc` is to threads: the library's tables and
//! atomics work across processes as they are, and nothing of it knows. So while [`Arena::scope`] runs, this thread's
//! allocations come from an arena: memory is handed out in order and given back as a whole. What is dropped outside of a
//! scope must not own memory of an arena.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io;
use std::ptr::{self, NonNull};

/// What is reserved at first: addresses, not memory. The system may allow less.
const MOST: usize = 4 << 30;
const LEAST: usize = 1 << 20;

#[derive(Clone, Copy)]
struct Span {
    base: usize,
    next: usize,
    end: usize,
    /// Something did not fit, and is private memory.
    overflowed: bool,
}

const NOWHERE: Span = Span { base: 0, next: 0, end: 0, overflowed: false };

thread_local! {
    /// The arena of the scope under way.
    static OPEN: Cell<Span> = const { Cell::new(NOWHERE) };
}

/// A mapping shared with the processes forked after it was made; unmapped when dropped, in this process.
pub struct Arena {
    span: Span,
}

impl Arena {
    /// Reserves addresses, as many as the system allows.
    pub fn new() -> io::Result<Arena> {
        let mut size = MOST;
        loop {
            let (protection, flags) =
                (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE);
            // SAFETY: a new mapping at an address of the system's choice touches no memory that is in use.
            let base = unsafe { libc::mmap(ptr::null_mut(), size, protection, flags, -1, 0) };
            if base != libc::MAP_FAILED {
                let base = base as usize;
                return Ok(Arena { span: Span { base, next: base, end: base + size, overflowed: false } });
            }
            if size == LEAST {
                return Err(io::Error::last_os_error());
            }
            size /= 2;
        }
    }

    /// Runs `build` with this thread's allocations in the arena. Not to be nested.
    pub fn scope<T>(&mut self, build: impl FnOnce() -> T) -> T {
        debug_assert_eq!(OPEN.get().end, 0, "scopes do not nest");
        OPEN.set(self.span);
        let built = build();
        self.span = OPEN.replace(NOWHERE);
        built
    }

    /// Whether something did not fit, so that not all is shared.
    pub fn overflowed(&self) -> bool {
        self.span.overflowed
    }

    /// Gives back what is not used; nothing can be built afterwards.
    pub fn close(&mut self) {
        // SAFETY: it asks for a number.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
        let used = self.span.next.next_multiple_of(page);
        if used < self.span.end {
            // SAFETY: nothing has been handed out from `next` on, and nothing will.
            unsafe { libc::munmap(used as *mut libc::c_void, self.span.end - used) };
        }
        self.span.end = used;
        self.span.next = used;
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: the mapping is this arena's, and whoever drops it has no references into it.
        unsafe { libc::munmap(self.span.base as *mut libc::c_void, self.span.end - self.span.base) };
    }
}

/// The allocator of this library: the system's outside of scopes.
struct Switch;

#[global_allocator]
static ALLOCATOR: Switch = Switch;

/// The next place of the open arena; `None` outside of scopes or when it is full.
fn bump(layout: Layout) -> Option<NonNull<u8>> {
    let mut span = OPEN.get();
    if span.end == 0 {
        return None;
    }
    let at = span.next.next_multiple_of(layout.align());
    match at.checked_add(layout.size()).filter(|next| *next <= span.end) {
        Some(next) => {
            span.next = next;
            OPEN.set(span);
            NonNull::new(at as *mut u8)
        }
        None => {
            span.overflowed = true;
            OPEN.set(span);
            None
        }
    }
}

// SAFETY: blocks of an arena are handed out once, aligned and within the mapping; all others are the system's, which gets
// back exactly those.
unsafe impl GlobalAlloc for Switch {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match bump(layout) {
            Some(place) => place.as_ptr(),
            // SAFETY: the caller's promises are passed on.
            None => unsafe { System.alloc(layout) },
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match bump(layout) {
            // A new mapping is zero, and its places are used once.
            Some(place) => place.as_ptr(),
            // SAFETY: the caller's promises are passed on.
            None => unsafe { System.alloc_zeroed(layout) },
        }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        let span = OPEN.get();
        if (span.base..span.end).contains(&(place as usize)) {
            return;
        }
        // SAFETY: the caller's promises are passed on; it is no block of an arena, since those are freed in scopes only.
        unsafe { System.dealloc(place, layout) };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use super::*;

    #[test]
    fn processes_share_what_is_built_in_a_scope() {
        let mut arena = Arena::new().unwrap();
        let private: Box<AtomicU64> = Box::default();
        let shared: &'static AtomicU64 = arena.scope(|| {
            drop(vec![1u8; 10_000]);
            Box::leak(Box::default())
        });
        arena.close();
        assert!(!arena.overflowed());
        // SAFETY: the child uses atomics and _exit, both of which a forked child may.
        let child = unsafe { libc::fork() };
        if child == 0 {
            shared.fetch_add(5, Relaxed);
            private.fetch_add(5, Relaxed);
            // SAFETY: it ends the child.
            unsafe { libc::_exit(0) };
        }
        let mut status = 0;
        // SAFETY: `status` outlives the call.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!((shared.load(Relaxed), private.load(Relaxed)), (5, 0));
    }

    #[test]
    fn places_are_aligned_and_do_not_overlap() {
        let mut arena = Arena::new().unwrap();
        #[repr(align(64))]
        struct Line(u8);
        let (bytes, line, more) =
            arena.scope(|| (vec![1u8; 3].leak(), Box::leak(Box::new(Line(2))), vec![3u8; 100].leak()));
        assert_eq!(line as *mut Line as usize % 64, 0);
        assert!(bytes.iter().all(|b| *b == 1) && line.0 == 2 && more.iter().all(|b| *b == 3));
    }

    #[test]
    fn what_does_not_fit_is_private() {
        let mut arena = Arena::new().unwrap();
        arena.close();
        let list = arena.scope(|| vec![7u8; 100_000]);
        assert!(arena.overflowed() && list.iter().all(|b| *b == 7));
    }
}
