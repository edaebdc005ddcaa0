//! A build for development is linked to a fixed address: relocating its pointers is a third of what a start costs, and the
//! end-to-end tests start it thousands of times. Optimized builds keep their random address.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("OPT_LEVEL").as_deref() == Ok("0") {
        println!("cargo:rustc-link-arg-bins=-no-pie");
    }
}
