//! Files with servers: written when servers change at run time, and read when they change on the disk.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;

use balanza_config::model::membership::{Change, Protocol};
use balanza_config::model::{ServerAddress, UpstreamServer};
use balanza_config::{FileSystem, Options, load};

use super::{listener, wait_for};
use crate::{Engine, Setup};

fn setup(http: &TcpListener, directory: &Path, upstream: &str) -> Setup {
    let file = directory.join("nginx.conf");
    let listen = http.local_addr().unwrap();
    let text = format!(
        "error_log stderr emerg; events {{}} http {{ access_log off; upstream u {{ zone u 64k; {upstream} }}
           server {{ listen {listen}; location / {{ proxy_pass http://u; }} }} }}"
    );
    fs::write(&file, text).unwrap();
    let (config, problems) = load(&FileSystem, &Options::new(directory, &file));
    let config = Arc::new(config.unwrap_or_else(|| panic!("{problems:?}")));
    let listeners = config.http.listens.iter().map(|it| (it.address.clone(), vec![http.try_clone().unwrap().into()]));
    let listeners = listeners.collect();
    Setup { config, listeners, logs: Vec::new(), threads: 1, changes: Default::default(), respawned: 0 }
}

fn server(port: u16) -> UpstreamServer {
    let address = format!("127.0.0.1:{port}");
    UpstreamServer::new(address.clone(), ServerAddress::Inet(address.parse().unwrap()))
}

fn ports(engine: &Engine) -> Vec<u16> {
    let port = |address: ServerAddress| match address {
        ServerAddress::Inet(address) => address.port(),
        ServerAddress::Unix(_) => 0,
    };
    engine.in_flight(Protocol::Http, "u").into_iter().map(|(address, _)| port(address)).collect()
}

#[test]
fn changes_are_kept_in_the_state_file() {
    let (directory, http) = (tempfile::tempdir().unwrap(), listener());
    let state = directory.path().join("servers");
    let upstream = "state servers;";
    let engine = Engine::start(setup(&http, directory.path(), upstream)).unwrap();
    assert_eq!(ports(&engine), Vec::<u16>::new(), "without a file there is no server");
    engine.change(Protocol::Http, "u", Change::Add(UpstreamServer { weight: 3, ..server(1001) })).unwrap();
    engine.change(Protocol::Http, "u", Change::Add(UpstreamServer { down: true, ..server(1002) })).unwrap();
    assert_eq!(fs::read_to_string(&state).unwrap(), "server 127.0.0.1:1001 weight=3;\nserver 127.0.0.1:1002 down;\n");
    // A reload and a new process begin with it.
    engine.reload(setup(&http, directory.path(), upstream)).unwrap();
    assert_eq!((ports(&engine), engine.changes().len()), (vec![1001, 1002], 0));
    engine.stop();
    let engine = Engine::start(setup(&http, directory.path(), upstream)).unwrap();
    assert_eq!(ports(&engine), [1001, 1002]);
    // By hand.
    fs::write(&state, "# mine\nserver 127.0.0.1:1003;\n").unwrap();
    wait_for("the edited file", || ports(&engine) == [1003]);
    // A change on top of it, and what is wrong is not used.
    engine.change(Protocol::Http, "u", Change::Add(server(1004))).unwrap();
    assert_eq!(fs::read_to_string(&state).unwrap(), "server 127.0.0.1:1003;\nserver 127.0.0.1:1004;\n");
    fs::write(&state, "server 127.0.0.1:1005\n").unwrap();
    std::thread::sleep(std::time::Duration::from_millis(1500));
    assert_eq!(ports(&engine), [1003, 1004]);
    fs::write(&state, "").unwrap();
    wait_for("the empty file", || ports(&engine).is_empty());
    engine.stop();
    let left: Vec<_> = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

#[test]
fn a_list_goes_together_with_the_configuration_and_with_changes() {
    let (directory, http) = (tempfile::tempdir().unwrap(), listener());
    let list = directory.path().join("list");
    fs::write(&list, "server 127.0.0.1:2001;\nserver 127.0.0.1:2002 weight=2;\n").unwrap();
    let upstream = "server 127.0.0.1:2000; server_list list;";
    let engine = Engine::start(setup(&http, directory.path(), upstream)).unwrap();
    assert_eq!(ports(&engine), [2000, 2001, 2002]);
    engine.change(Protocol::Http, "u", Change::Add(server(2009))).unwrap();
    fs::write(&list, "server 127.0.0.1:2002 weight=2;\nserver 127.0.0.1:2003;\n").unwrap();
    wait_for("the changed list", || ports(&engine) == [2000, 2002, 2003, 2009]);
    assert_eq!(fs::read_to_string(&list).unwrap(), "server 127.0.0.1:2002 weight=2;\nserver 127.0.0.1:2003;\n");
    fs::remove_file(&list).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(1500));
    assert_eq!(ports(&engine), [2000, 2002, 2003, 2009], "a list that has gone is wrong");
    fs::write(&list, "server 127.0.0.1:2004;\n").unwrap();
    wait_for("the list again", || ports(&engine) == [2000, 2004, 2009]);
    engine.reload(setup(&http, directory.path(), upstream)).unwrap();
    assert_eq!(ports(&engine), [2000, 2004, 2009]);
    engine.stop();
}
