//! Who starts processes: one thread that lives as long as the lab, because the kernel's signal at a parent's death comes
//! when the *thread* ends that started the child, and because a child runs on the processors of that thread.

use std::io;
use std::process::{Child, Command};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, Sender, channel};

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use crate::record::Role;

struct Order {
    role: Role,
    command: Command,
    answer: Sender<io::Result<Child>>,
}

/// Starts a process of a role, on that role's processors.
pub(super) fn launch(role: Role, command: Command) -> io::Result<Child> {
    static LAUNCHER: OnceLock<Sender<Order>> = OnceLock::new();
    let gone = || io::Error::other("the thread that starts processes is gone");
    let launcher = LAUNCHER.get_or_init(|| {
        let (sender, orders) = channel();
        // Without the thread the channel is closed, which the first order notices.
        let _ = std::thread::Builder::new().name("launcher".into()).spawn(move || serve(&orders));
        sender
    });
    let (answer, result) = channel();
    launcher.send(Order { role, command, answer }).map_err(|_| gone())?;
    result.recv().map_err(|_| gone())?
}

fn serve(orders: &Receiver<Order>) {
    for mut order in orders {
        pin(order.role);
        // Whoever asked may have gone; the child is dropped then, which happens at the lab's end only.
        let _ = order.answer.send(order.command.spawn());
    }
}

/// Puts the calling thread, and what it starts, on the processors of a role, if there are enough to divide.
pub fn pin(role: Role) {
    if let Some(division) = division() {
        let mut set = CpuSet::new();
        for &processor in division.of(role) {
            // A number that a set cannot hold is not pinned to.
            let _ = set.set(processor);
        }
        // Pinning makes a measurement quieter; where it is forbidden the measurement is still one.
        let _ = sched_setaffinity(Pid::from_raw(0), &set);
    }
}

/// How many processors a balancer has for itself; 1 where there are too few to divide.
pub fn balancer_processors() -> u16 {
    division().map_or(1, |division| u16::try_from(division.balancer.len()).unwrap_or(u16::MAX))
}

/// Which processors each role has, in words.
pub fn pinning() -> String {
    match division() {
        None => "none: fewer than 4 processors".into(),
        Some(Division { balancer, client, servers }) => {
            format!("balancer {}, client {}, servers {}", show(balancer), show(client), show(servers))
        }
    }
}

#[derive(Debug, PartialEq)]
struct Division {
    balancer: Vec<usize>,
    client: Vec<usize>,
    servers: Vec<usize>,
}

impl Division {
    fn of(&self, role: Role) -> &[usize] {
        match role {
            Role::Balancer => &self.balancer,
            Role::Client => &self.client,
            Role::Server => &self.servers,
        }
    }
}

fn division() -> Option<&'static Division> {
    static DIVISION: OnceLock<Option<Division>> = OnceLock::new();
    DIVISION.get_or_init(|| divide(&allowed())).as_ref()
}

/// The processors of this process, as it was started.
fn allowed() -> Vec<usize> {
    let Ok(set) = sched_getaffinity(nix::unistd::getpid()) else { return Vec::new() };
    (0..CpuSet::count()).filter(|&processor| set.is_set(processor).unwrap_or(false)).collect()
}

/// A quarter for the balancer, a quarter for the client, the rest for the servers.
fn divide(processors: &[usize]) -> Option<Division> {
    let quarter = processors.len() / 4;
    (quarter > 0).then(|| Division {
        balancer: processors[..quarter].to_vec(),
        client: processors[quarter..2 * quarter].to_vec(),
        servers: processors[2 * quarter..].to_vec(),
    })
}

fn show(processors: &[usize]) -> String {
    match processors {
        [one] => format!("{one}"),
        [first, .., last] if last - first + 1 == processors.len() => format!("{first}-{last}"),
        several => several.iter().map(usize::to_string).collect::<Vec<_>>().join(","),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_divided_where_there_are_enough() {
        assert_eq!(divide(&[]), None);
        assert_eq!(divide(&[0, 1, 2]), None);
        let division = divide(&[0, 1, 2, 3]).unwrap();
        assert_eq!((division.balancer, division.client, division.servers), (vec![0], vec![1], vec![2, 3]));
        let division = divide(&[0, 2, 4, 5, 6, 7, 8, 9, 10]).unwrap();
        assert_eq!(division.balancer, [0, 2]);
        assert_eq!(division.client, [4, 5]);
        assert_eq!(division.servers, [6, 7, 8, 9, 10]);
    }

    #[test]
    fn processors_in_words() {
        assert_eq!(show(&[3]), "3");
        assert_eq!(show(&[2, 3, 4]), "2-4");
        assert_eq!(show(&[0, 2]), "0,2");
    }
}
