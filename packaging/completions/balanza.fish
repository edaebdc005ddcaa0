# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_balanza_global_optspecs
    string join \n t T q v V c= p= e= g= s= version h/help
end

function __fish_balanza_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_balanza_global_optspecs) -- $cmd 2>/dev/null
    or return 0
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_balanza_using_subcommand
    set -l cmd (__fish_balanza_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c balanza -n "__fish_balanza_needs_command" -s c -d 'The configuration' -r -F
complete -c balanza -n "__fish_balanza_needs_command" -s p -d 'Where relative paths in the configuration start' -r -f -a "(__fish_complete_directories)"
complete -c balanza -n "__fish_balanza_needs_command" -s e -d 'The error log until the configuration names one' -r -F
complete -c balanza -n "__fish_balanza_needs_command" -s g -d 'Directives in front of the configuration' -r -f
complete -c balanza -n "__fish_balanza_needs_command" -s s -d 'Signal the running balanza' -r -f -a "stop\t''
quit\t''
reopen\t''
reload\t''"
complete -c balanza -n "__fish_balanza_needs_command" -s t -d 'Test the configuration'
complete -c balanza -n "__fish_balanza_needs_command" -s T -d 'Test the configuration and print its files'
complete -c balanza -n "__fish_balanza_needs_command" -s q -d 'Print errors only'
complete -c balanza -n "__fish_balanza_needs_command" -s v -d 'Print the version'
complete -c balanza -n "__fish_balanza_needs_command" -s V -d 'Print the version, the paths and the modules'
complete -c balanza -n "__fish_balanza_needs_command" -l version -d 'Print the version'
complete -c balanza -n "__fish_balanza_needs_command" -s h -l help -d 'Print help'
complete -c balanza -n "__fish_balanza_needs_command" -f -a "demo" -d 'Show Balanza at work: three small servers of different speed, and a balancer in front of them.'
complete -c balanza -n "__fish_balanza_needs_command" -f -a "target" -d 'Start small HTTP servers whose cost for each request is known, to have something to balance.'
complete -c balanza -n "__fish_balanza_needs_command" -f -a "algorithms" -d 'List the balancing algorithms, or explain one of them.'
complete -c balanza -n "__fish_balanza_needs_command" -f -a "simulate" -d 'Simulate the algorithms in virtual time.'
complete -c balanza -n "__fish_balanza_needs_command" -f -a "recommend" -d 'Recommend an algorithm from access logs.'
complete -c balanza -n "__fish_balanza_needs_command" -f -a "lab" -d 'Repeat experiments on real processes: servers, balancers side by side, load.'
complete -c balanza -n "__fish_balanza_needs_command" -f -a "cert" -d 'Make a certificate that nobody has signed, for trying things out'
complete -c balanza -n "__fish_balanza_needs_command" -f -a "api" -d 'Ask the API of a running balancer, for scripts.'
complete -c balanza -n "__fish_balanza_needs_command" -f -a "top" -d 'Show the servers of a running balancer, live: rates, failures, requests in flight and times'
complete -c balanza -n "__fish_balanza_needs_command" -f -a "status" -d 'Show the servers of a running balancer once, with an exit code for scripts'
complete -c balanza -n "__fish_balanza_needs_command" -f -a "drain" -d 'Send no new requests to a server'
complete -c balanza -n "__fish_balanza_needs_command" -f -a "undrain" -d 'Send requests to a server again that was drained or is down'
complete -c balanza -n "__fish_balanza_needs_command" -f -a "set-weight" -d 'Change the weight of a server'
complete -c balanza -n "__fish_balanza_needs_command" -f -a "experiment" -d 'Compare balancing methods in production, in blocks of time'
complete -c balanza -n "__fish_balanza_needs_command" -f -a "explain" -d 'Explain where a request went, why, and where its time went'
complete -c balanza -n "__fish_balanza_needs_command" -f -a "doctor" -d 'Check whether this machine can do what the configuration asks of it'
complete -c balanza -n "__fish_balanza_needs_command" -f -a "migrate" -d 'Move over from NGINX or HAProxy.'
complete -c balanza -n "__fish_balanza_needs_command" -f -a "help" -d 'Print the help of balanza or of a command'
complete -c balanza -n "__fish_balanza_using_subcommand demo" -l port -d 'Port of the balancer on 127.0.0.1; 0 takes any free one. The servers take the ports that follow, where free' -r
complete -c balanza -n "__fish_balanza_using_subcommand demo" -l algorithm -d 'How the balancer chooses a server: a name that `balanza algorithms` prints, or a directive of nginx.conf' -r
complete -c balanza -n "__fish_balanza_using_subcommand demo" -l versus -d 'Show a second farm, equal to the first, that balances by this algorithm' -r
complete -c balanza -n "__fish_balanza_using_subcommand demo" -l servers -d 'Number of servers; their speeds are 1, 1/2, 1/4, 1, 1/2, ...' -r
complete -c balanza -n "__fish_balanza_using_subcommand demo" -l load -d 'Requests a second that the demo sends by itself, 0 for none' -r
complete -c balanza -n "__fish_balanza_using_subcommand demo" -l program -d 'Put this program in the balancer\'s place, for example /usr/sbin/nginx; it gets the same command line and file' -r -F
complete -c balanza -n "__fish_balanza_using_subcommand demo" -l tls -d 'Serve HTTPS and HTTP/2, with a certificate that is made for the demo, and send the load the same way'
complete -c balanza -n "__fish_balanza_using_subcommand demo" -l print-config -d 'Print the balancer\'s configuration and start nothing'
complete -c balanza -n "__fish_balanza_using_subcommand demo" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c balanza -n "__fish_balanza_using_subcommand target" -l listen -d 'Address to listen on, once for each server; port 0 takes any free one [default: 127.0.0.1:9001]' -r
complete -c balanza -n "__fish_balanza_using_subcommand target" -l count -d 'Start so many servers, on the ports that follow the one given by --listen' -r
complete -c balanza -n "__fish_balanza_using_subcommand target" -l control -d 'Address that answers questions about the server alone, once for each; as --listen with --count' -r
complete -c balanza -n "__fish_balanza_using_subcommand target" -l workload -d 'What a request costs [default: delay with --delay or --time, else fixed]' -r -f -a "fixed\t'Answer at once'
delay\t'Take --delay, 10ms'
poisson\t'Take --poisson-step times a Poisson number of mean --poisson-mean: 100ms x Poisson(0.99)'
matrix\t'Fill two 20x20 matrices with random numbers and multiply them (--matrix-size)'
loop\t'Run a loop of 50000 turns (--turns)'"
complete -c balanza -n "__fish_balanza_using_subcommand target" -l service -d 'Whether a request computes or only takes its time [default: burn for matrix and loop, else virtual]' -r -f -a "virtual\t'Hold one of --concurrency workers for the service time, without using a processor'
burn\t'Compute, on a processor'"
complete -c balanza -n "__fish_balanza_using_subcommand target" -l time -d 'Service time of a request at speed 1; under burn so much processor time, in whole computations' -r
complete -c balanza -n "__fish_balanza_using_subcommand target" -l distribution -d 'How --time varies from request to request' -r -f -a "constant\t'All the same'
exponential\t'Exponential, with the stated time as mean'"
complete -c balanza -n "__fish_balanza_using_subcommand target" -l delay -d 'Delay of the workload "delay", as in 10ms; the same as --time there [default: 10ms]' -r
complete -c balanza -n "__fish_balanza_using_subcommand target" -l poisson-mean -d 'Mean of the Poisson number of the workload "poisson" [default: 0.99]' -r
complete -c balanza -n "__fish_balanza_using_subcommand target" -l poisson-step -d 'Delay for each unit of the Poisson number [default: 100ms]' -r
complete -c balanza -n "__fish_balanza_using_subcommand target" -l matrix-size -d 'Rows and columns of the matrices of the workload "matrix" [default: 20]' -r
complete -c balanza -n "__fish_balanza_using_subcommand target" -l turns -d 'Turns of the workload "loop" [default: 50000]' -r
complete -c balanza -n "__fish_balanza_using_subcommand target" -l speed -d 'How fast a server is: divides delays and CPU work, 0.5 = half as fast' -r
complete -c balanza -n "__fish_balanza_using_subcommand target" -l credits -d 'Credits of a server, full at the start: seconds of work at full speed that they pay for, as in 30s' -r
complete -c balanza -n "__fish_balanza_using_subcommand target" -l credit-rate -d 'Credits earned in each second, in seconds of work, 0 to 1 [default: 0.1]' -r
complete -c balanza -n "__fish_balanza_using_subcommand target" -l throttle -d 'Speed without credits, as a part of the full one [default: --credit-rate]' -r
complete -c balanza -n "__fish_balanza_using_subcommand target" -l concurrency -d 'Requests that one server works on at once, others wait in order [default: unlimited]' -r
complete -c balanza -n "__fish_balanza_using_subcommand target" -l discipline -d 'How requests share the workers of --concurrency, under virtual' -r -f -a "fifo\t'A worker does one request at a time, in the order of arrival'
sharing\t'All requests progress at once and equally, as threads on k processors'"
complete -c balanza -n "__fish_balanza_using_subcommand target" -l connections -d 'Connections that one server accepts at once, others wait in the listen queue [default: unlimited]' -r
complete -c balanza -n "__fish_balanza_using_subcommand target" -l backlog -d 'Length of the listen queue, where connections wait to be accepted' -r
complete -c balanza -n "__fish_balanza_using_subcommand target" -l threads -d 'Threads of one server that read and answer; CPU work has as many of its own' -r
complete -c balanza -n "__fish_balanza_using_subcommand target" -l body-size -d 'Size of the answer\'s body, as in 200, 16k, 1m [default: just the server\'s name]' -r
complete -c balanza -n "__fish_balanza_using_subcommand target" -l status -d 'Status of the answers' -r
complete -c balanza -n "__fish_balanza_using_subcommand target" -l name -d 'Name that the answers carry; several servers number themselves NAME-1, NAME-2 [default: ADDRESS:PORT]' -r
complete -c balanza -n "__fish_balanza_using_subcommand target" -l seed -d 'Seed of the random numbers: the same seed, the same sequence of delays [default: another each time]' -r
complete -c balanza -n "__fish_balanza_using_subcommand target" -l no-keep-alive -d 'Close every connection after one answer'
complete -c balanza -n "__fish_balanza_using_subcommand target" -l report-load -d 'Answers say how busy the server is, in the header X-Load, for `load_report header X-Load`: its requests as a part of --concurrency, 1 = as many as it works on at once'
complete -c balanza -n "__fish_balanza_using_subcommand target" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c balanza -n "__fish_balanza_using_subcommand algorithms" -l advise -d 'Compare all algorithms in simulated situations, such as a slow server or many balancers'
complete -c balanza -n "__fish_balanza_using_subcommand algorithms" -l json -d 'Print JSON: an array of all algorithms, or one object'
complete -c balanza -n "__fish_balanza_using_subcommand algorithms" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c balanza -n "__fish_balanza_using_subcommand simulate; and not __fish_seen_subcommand_from bins sweep" -s a -l algorithm -d 'An algorithm with parameters as in nginx.conf; repeat it, or separate by commas, to compare several [default: random,round_robin,two_choices,least_conn]' -r
complete -c balanza -n "__fish_balanza_using_subcommand simulate; and not __fish_seen_subcommand_from bins sweep" -s n -l servers -d 'Number of servers [default: 100]' -r
complete -c balanza -n "__fish_balanza_using_subcommand simulate; and not __fish_seen_subcommand_from bins sweep" -s l -l load -d 'Offered work as a part of the capacity of all servers; separate several by commas [default: 0.9]' -r
complete -c balanza -n "__fish_balanza_using_subcommand simulate; and not __fish_seen_subcommand_from bins sweep" -l service -d 'Service time: exponential, constant, uniform:0s:2s, lognormal:MEAN:CV, pareto:MEAN:SHAPE, bimodal:SHORT:LONG:PART, poisson:STEP:MEAN, trace:FILE; with a mean: constant:10ms [default: exponential:1s]' -r
complete -c balanza -n "__fish_balanza_using_subcommand simulate; and not __fish_seen_subcommand_from bins sweep" -l arrivals -d 'Arrivals: poisson, deterministic, mmpp:BURST:ON:OFF, trace:FILE, closed:USERS[:THINK] [default: poisson]' -r
complete -c balanza -n "__fish_balanza_using_subcommand simulate; and not __fish_seen_subcommand_from bins sweep" -s d -l dispatchers -d 'Number of balancers; each request arrives at a random one [default: 1]' -r
complete -c balanza -n "__fish_balanza_using_subcommand simulate; and not __fish_seen_subcommand_from bins sweep" -l view -d 'What a balancer knows: its own requests, or those of all balancers [default: own if there are several]' -r -f -a "own\t''
shared\t''"
complete -c balanza -n "__fish_balanza_using_subcommand simulate; and not __fish_seen_subcommand_from bins sweep" -s c -l choices -d 'Servers to compare, for algorithms that compare a few; 1 is random choice' -r
complete -c balanza -n "__fish_balanza_using_subcommand simulate; and not __fish_seen_subcommand_from bins sweep" -l staleness -d 'Balancers see the queues of the servers as of the last update, at this interval: 500ms, 2s' -r
complete -c balanza -n "__fish_balanza_using_subcommand simulate; and not __fish_seen_subcommand_from bins sweep" -s k -l concurrency -d 'Requests that a server handles at a time [default: 1]' -r
complete -c balanza -n "__fish_balanza_using_subcommand simulate; and not __fish_seen_subcommand_from bins sweep" -l discipline -d 'Order of service: one after the other, or all at once with equal shares [default: fifo]' -r
complete -c balanza -n "__fish_balanza_using_subcommand simulate; and not __fish_seen_subcommand_from bins sweep" -l speeds -d 'Speeds of the servers, separated by commas, repeated for all servers [default: 1]' -r
complete -c balanza -n "__fish_balanza_using_subcommand simulate; and not __fish_seen_subcommand_from bins sweep" -l weights -d 'Weights of the servers, separated by commas, repeated for all servers [default: 1]' -r
complete -c balanza -n "__fish_balanza_using_subcommand simulate; and not __fish_seen_subcommand_from bins sweep" -l delay -d 'Network delay between a balancer and a server, in each direction [default: 0]' -r
complete -c balanza -n "__fish_balanza_using_subcommand simulate; and not __fish_seen_subcommand_from bins sweep" -l timeout -d 'Time-out of an attempt [default: none]' -r
complete -c balanza -n "__fish_balanza_using_subcommand simulate; and not __fish_seen_subcommand_from bins sweep" -l retries -d 'Retries, at other servers [default: 0]' -r
complete -c balanza -n "__fish_balanza_using_subcommand simulate; and not __fish_seen_subcommand_from bins sweep" -l keys -d 'Number of client addresses, for algorithms that use them [default: 10000]' -r
complete -c balanza -n "__fish_balanza_using_subcommand simulate; and not __fish_seen_subcommand_from bins sweep" -l zipf -d 'Skew of the client addresses: the k-th has a share proportional to 1 / k^S [default: 0]' -r
complete -c balanza -n "__fish_balanza_using_subcommand simulate; and not __fish_seen_subcommand_from bins sweep" -l requests -d 'Requests of a replication, including the warm-up [default: a million, or enough for 50 service times]' -r
complete -c balanza -n "__fish_balanza_using_subcommand simulate; and not __fish_seen_subcommand_from bins sweep" -l duration -d 'Virtual time of a replication' -r
complete -c balanza -n "__fish_balanza_using_subcommand simulate; and not __fish_seen_subcommand_from bins sweep" -l warmup -d 'Warm-up in virtual time, which is not measured [default: found with MSER-5 in a separate replication]' -r
complete -c balanza -n "__fish_balanza_using_subcommand simulate; and not __fish_seen_subcommand_from bins sweep" -s r -l replications -d 'Independent replications, for the confidence intervals [default: 10; above 10,000 servers 3]' -r
complete -c balanza -n "__fish_balanza_using_subcommand simulate; and not __fish_seen_subcommand_from bins sweep" -s s -l seed -d 'Seed of all random numbers [default: 1]' -r
complete -c balanza -n "__fish_balanza_using_subcommand simulate; and not __fish_seen_subcommand_from bins sweep" -s o -l out -d 'Write report.html, its first picture as picture.svg, results.csv and results.json into this directory' -r -F
complete -c balanza -n "__fish_balanza_using_subcommand simulate; and not __fish_seen_subcommand_from bins sweep" -l list -d 'List the scenarios that come with the program'
complete -c balanza -n "__fish_balanza_using_subcommand simulate; and not __fish_seen_subcommand_from bins sweep" -l print -d 'Print the scenario without simulating it, as a start for your own'
complete -c balanza -n "__fish_balanza_using_subcommand simulate; and not __fish_seen_subcommand_from bins sweep" -l json -d 'Print JSON: a line for each algorithm and load; for a scenario, all results'
complete -c balanza -n "__fish_balanza_using_subcommand simulate; and not __fish_seen_subcommand_from bins sweep" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c balanza -n "__fish_balanza_using_subcommand simulate; and not __fish_seen_subcommand_from bins sweep" -a "bins" -d 'Balls into bins: distribute requests that never end, and show how even the distribution is.'
complete -c balanza -n "__fish_balanza_using_subcommand simulate; and not __fish_seen_subcommand_from bins sweep" -a "sweep" -d 'Run a scenario with some of its values varied: algorithms x loads x sizes x seeds.'
complete -c balanza -n "__fish_balanza_using_subcommand simulate; and __fish_seen_subcommand_from bins" -s n -l servers -d 'Number of servers' -r
complete -c balanza -n "__fish_balanza_using_subcommand simulate; and __fish_seen_subcommand_from bins" -s m -l requests -d 'Number of requests' -r
complete -c balanza -n "__fish_balanza_using_subcommand simulate; and __fish_seen_subcommand_from bins" -s a -l algorithm -d 'An algorithm, with parameters as in nginx.conf; repeat it, or separate by commas, to compare several' -r
complete -c balanza -n "__fish_balanza_using_subcommand simulate; and __fish_seen_subcommand_from bins" -l weights -d 'Weights of the servers (5,1,1; loads are divided by them), or of the requests: unit, or poisson for 1 + 0.1 * Poisson(0.99), as in a web application' -r
complete -c balanza -n "__fish_balanza_using_subcommand simulate; and __fish_seen_subcommand_from bins" -l keys -d 'Number of client addresses, for algorithms that use them' -r
complete -c balanza -n "__fish_balanza_using_subcommand simulate; and __fish_seen_subcommand_from bins" -s r -l replications -d 'Independent replications' -r
complete -c balanza -n "__fish_balanza_using_subcommand simulate; and __fish_seen_subcommand_from bins" -s s -l seed -d 'Seed of all random numbers' -r
complete -c balanza -n "__fish_balanza_using_subcommand simulate; and __fish_seen_subcommand_from bins" -s o -l out -d 'Write report.html, its first picture as picture.svg, results.csv and results.json into this directory' -r -F
complete -c balanza -n "__fish_balanza_using_subcommand simulate; and __fish_seen_subcommand_from bins" -l json -d 'Print JSON: a line for each algorithm'
complete -c balanza -n "__fish_balanza_using_subcommand simulate; and __fish_seen_subcommand_from bins" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c balanza -n "__fish_balanza_using_subcommand simulate; and __fish_seen_subcommand_from sweep" -s o -l out -d 'The directory of the results [default: balanza-sweep/PLAN]' -r -F
complete -c balanza -n "__fish_balanza_using_subcommand simulate; and __fish_seen_subcommand_from sweep" -s j -l jobs -d 'Runs at a time [default: the number of processors]' -r
complete -c balanza -n "__fish_balanza_using_subcommand simulate; and __fish_seen_subcommand_from sweep" -l on -d 'Run on the workers of a Dask cluster' -r
complete -c balanza -n "__fish_balanza_using_subcommand simulate; and __fish_seen_subcommand_from sweep" -l python -d 'The Python with the package balanza-sweep, for --on' -r -F
complete -c balanza -n "__fish_balanza_using_subcommand simulate; and __fish_seen_subcommand_from sweep" -l worker-binary -d 'Where the workers of a cluster have this program [default: where it is here]' -r -F
complete -c balanza -n "__fish_balanza_using_subcommand simulate; and __fish_seen_subcommand_from sweep" -l run -d 'Do this run alone, print its record, and keep nothing' -r
complete -c balanza -n "__fish_balanza_using_subcommand simulate; and __fish_seen_subcommand_from sweep" -l dry-run -d 'Print the runs, and which of them are done'
complete -c balanza -n "__fish_balanza_using_subcommand simulate; and __fish_seen_subcommand_from sweep" -l units -d 'Read runs as lines of JSON from standard input, and print the record of each: what workers do'
complete -c balanza -n "__fish_balanza_using_subcommand simulate; and __fish_seen_subcommand_from sweep" -l json -d 'Print the runs with their results as lines of JSON'
complete -c balanza -n "__fish_balanza_using_subcommand simulate; and __fish_seen_subcommand_from sweep" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c balanza -n "__fish_balanza_using_subcommand recommend" -s c -l conf -d 'The configuration that wrote the log: its log_format, and the upstream block with the algorithm and the weights [default: round robin with equal weights]' -r -F
complete -c balanza -n "__fish_balanza_using_subcommand recommend" -l upstream -d 'The upstream to look at, if the configuration has several [default: the one with most requests in the log]' -r
complete -c balanza -n "__fish_balanza_using_subcommand recommend" -l format -d 'The name of a log_format of the configuration, or its text [default: the one that fits the lines]' -r
complete -c balanza -n "__fish_balanza_using_subcommand recommend" -l escape -d 'How values of --format are escaped' -r -f -a "default\t''
json\t''
none\t''"
complete -c balanza -n "__fish_balanza_using_subcommand recommend" -l current -d 'The algorithm that was in operation, as after balance in nginx.conf, if there is no configuration' -r
complete -c balanza -n "__fish_balanza_using_subcommand recommend" -l goal -d 'What is to be best' -r -f -a "p99\t'The response time that 99 of 100 requests stay below'
mean\t'The mean response time'
errors\t'The part of failed requests'
servers\t'The number of servers that keep the p99 below --target'"
complete -c balanza -n "__fish_balanza_using_subcommand recommend" -l target -d 'The p99 that --goal servers has to keep: 200ms, 1.5s' -r
complete -c balanza -n "__fish_balanza_using_subcommand recommend" -l worth -d 'What a change has to be worth, in percent of the goal\'s figure; less is answered with "stay"' -r
complete -c balanza -n "__fish_balanza_using_subcommand recommend" -s r -l replications -d 'Runs of each candidate, for the intervals' -r
complete -c balanza -n "__fish_balanza_using_subcommand recommend" -s s -l seed -d 'Seed of all random numbers; the same seed and log give the same answer' -r
complete -c balanza -n "__fish_balanza_using_subcommand recommend" -s o -l out -d 'Write report.html and results.json into this directory' -r -F
complete -c balanza -n "__fish_balanza_using_subcommand recommend" -l json -d 'Print JSON'
complete -c balanza -n "__fish_balanza_using_subcommand recommend" -l sample -d 'Print a log of 30,000 requests to simulated servers of different speed, to try this command with'
complete -c balanza -n "__fish_balanza_using_subcommand recommend" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c balanza -n "__fish_balanza_using_subcommand lab; and not __fish_seen_subcommand_from list show run report compare doctor" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c balanza -n "__fish_balanza_using_subcommand lab; and not __fish_seen_subcommand_from list show run report compare doctor" -f -a "list" -d 'List the plans that come with the program'
complete -c balanza -n "__fish_balanza_using_subcommand lab; and not __fish_seen_subcommand_from list show run report compare doctor" -f -a "show" -d 'Show what a plan does and how long it takes'
complete -c balanza -n "__fish_balanza_using_subcommand lab; and not __fish_seen_subcommand_from list show run report compare doctor" -f -a "run" -d 'Run a plan and write its report'
complete -c balanza -n "__fish_balanza_using_subcommand lab; and not __fish_seen_subcommand_from list show run report compare doctor" -f -a "report" -d 'Show the results in a directory and write the report again'
complete -c balanza -n "__fish_balanza_using_subcommand lab; and not __fish_seen_subcommand_from list show run report compare doctor" -f -a "compare" -d 'Compare two directories of results'
complete -c balanza -n "__fish_balanza_using_subcommand lab; and not __fish_seen_subcommand_from list show run report compare doctor" -f -a "doctor" -d 'Check the tools that the plans need, and print the command that installs missing ones'
complete -c balanza -n "__fish_balanza_using_subcommand lab; and __fish_seen_subcommand_from list" -l json -d 'As JSON: name, title, seconds, quick_seconds'
complete -c balanza -n "__fish_balanza_using_subcommand lab; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help'
complete -c balanza -n "__fish_balanza_using_subcommand lab; and __fish_seen_subcommand_from show" -l toml -d 'Print the text of the plan, as a start for your own'
complete -c balanza -n "__fish_balanza_using_subcommand lab; and __fish_seen_subcommand_from show" -l quick -d 'Show the plan as --quick runs it'
complete -c balanza -n "__fish_balanza_using_subcommand lab; and __fish_seen_subcommand_from show" -s h -l help -d 'Print help'
complete -c balanza -n "__fish_balanza_using_subcommand lab; and __fish_seen_subcommand_from run" -s o -l out -d 'The directory for the results [default: balanza-lab/PLAN, with --quick balanza-lab/PLAN-quick]' -r -F
complete -c balanza -n "__fish_balanza_using_subcommand lab; and __fish_seen_subcommand_from run" -l only -d 'Only combinations of these parts: PART=NAME or NAME, separated by commas; PART is farm, system, algorithm or load' -r
complete -c balanza -n "__fish_balanza_using_subcommand lab; and __fish_seen_subcommand_from run" -s r -l repetitions -d 'Repetitions of each combination, instead of those of the plan; intervals need 3' -r
complete -c balanza -n "__fish_balanza_using_subcommand lab; and __fish_seen_subcommand_from run" -l seed -d 'The seed of all random numbers, instead of that of the plan' -r
complete -c balanza -n "__fish_balanza_using_subcommand lab; and __fish_seen_subcommand_from run" -l quick -d 'About two minutes: fewer repetitions and combinations, shorter loads'
complete -c balanza -n "__fish_balanza_using_subcommand lab; and __fish_seen_subcommand_from run" -l peers -d 'Add Caddy, with the algorithms that it has, beside the balancers of the plan, if it is installed'
complete -c balanza -n "__fish_balanza_using_subcommand lab; and __fish_seen_subcommand_from run" -l resume -d 'Keep the finished runs in the directory and run the missing ones'
complete -c balanza -n "__fish_balanza_using_subcommand lab; and __fish_seen_subcommand_from run" -l json -d 'Print all results as JSON instead of a summary'
complete -c balanza -n "__fish_balanza_using_subcommand lab; and __fish_seen_subcommand_from run" -l strict -d 'Fail if a check does not give the expected result'
complete -c balanza -n "__fish_balanza_using_subcommand lab; and __fish_seen_subcommand_from run" -s h -l help -d 'Print help'
complete -c balanza -n "__fish_balanza_using_subcommand lab; and __fish_seen_subcommand_from report" -l markdown -d 'Print Markdown'
complete -c balanza -n "__fish_balanza_using_subcommand lab; and __fish_seen_subcommand_from report" -l json -d 'Print all results as JSON'
complete -c balanza -n "__fish_balanza_using_subcommand lab; and __fish_seen_subcommand_from report" -l csv -d 'Print the columns of Locust\'s statistics as CSV'
complete -c balanza -n "__fish_balanza_using_subcommand lab; and __fish_seen_subcommand_from report" -s h -l help -d 'Print help'
complete -c balanza -n "__fish_balanza_using_subcommand lab; and __fish_seen_subcommand_from compare" -s h -l help -d 'Print help'
complete -c balanza -n "__fish_balanza_using_subcommand lab; and __fish_seen_subcommand_from doctor" -l json -d 'As JSON'
complete -c balanza -n "__fish_balanza_using_subcommand lab; and __fish_seen_subcommand_from doctor" -s h -l help -d 'Print help'
complete -c balanza -n "__fish_balanza_using_subcommand cert" -l self-signed -d 'Make a self-signed certificate for these hosts or addresses, the first of which names the files' -r
complete -c balanza -n "__fish_balanza_using_subcommand cert" -l output -d 'Where the files go: NAME.pem and NAME.key' -r -F
complete -c balanza -n "__fish_balanza_using_subcommand cert" -l force -d 'Replace files that are there'
complete -c balanza -n "__fish_balanza_using_subcommand cert" -s h -l help -d 'Print help'
complete -c balanza -n "__fish_balanza_using_subcommand api" -l url -d 'Where the API is' -r
complete -c balanza -n "__fish_balanza_using_subcommand api" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c balanza -n "__fish_balanza_using_subcommand top" -l url -d 'Where the API is' -r
complete -c balanza -n "__fish_balanza_using_subcommand top" -l every -d 'Seconds between two looks' -r
complete -c balanza -n "__fish_balanza_using_subcommand top" -l once -d 'Print the table once, with the rates of the last minute, and end'
complete -c balanza -n "__fish_balanza_using_subcommand top" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c balanza -n "__fish_balanza_using_subcommand status" -l url -d 'Where the API is' -r
complete -c balanza -n "__fish_balanza_using_subcommand status" -l protocol -d 'Which upstream, if http and stream have one of the same name' -r -f -a "http\t''
stream\t''"
complete -c balanza -n "__fish_balanza_using_subcommand status" -l json -d 'Print JSON'
complete -c balanza -n "__fish_balanza_using_subcommand status" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c balanza -n "__fish_balanza_using_subcommand drain" -l deadline -d 'Seconds until the server is set down and what it still serves is closed' -r
complete -c balanza -n "__fish_balanza_using_subcommand drain" -l timeout -d 'With --wait: seconds to wait at most' -r
complete -c balanza -n "__fish_balanza_using_subcommand drain" -l url -d 'Where the API is' -r
complete -c balanza -n "__fish_balanza_using_subcommand drain" -l protocol -d 'Which upstream, if http and stream have one of the same name' -r -f -a "http\t''
stream\t''"
complete -c balanza -n "__fish_balanza_using_subcommand drain" -l wait -d 'Wait until its last request has ended'
complete -c balanza -n "__fish_balanza_using_subcommand drain" -l json -d 'Print JSON'
complete -c balanza -n "__fish_balanza_using_subcommand drain" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c balanza -n "__fish_balanza_using_subcommand undrain" -l url -d 'Where the API is' -r
complete -c balanza -n "__fish_balanza_using_subcommand undrain" -l protocol -d 'Which upstream, if http and stream have one of the same name' -r -f -a "http\t''
stream\t''"
complete -c balanza -n "__fish_balanza_using_subcommand undrain" -l json -d 'Print JSON'
complete -c balanza -n "__fish_balanza_using_subcommand undrain" -s h -l help -d 'Print help'
complete -c balanza -n "__fish_balanza_using_subcommand set-weight" -l url -d 'Where the API is' -r
complete -c balanza -n "__fish_balanza_using_subcommand set-weight" -l protocol -d 'Which upstream, if http and stream have one of the same name' -r -f -a "http\t''
stream\t''"
complete -c balanza -n "__fish_balanza_using_subcommand set-weight" -l json -d 'Print JSON'
complete -c balanza -n "__fish_balanza_using_subcommand set-weight" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c balanza -n "__fish_balanza_using_subcommand experiment; and not __fish_seen_subcommand_from list show start stop" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c balanza -n "__fish_balanza_using_subcommand experiment; and not __fish_seen_subcommand_from list show start stop" -f -a "list" -d 'List the experiments that are configured, run or have ended'
complete -c balanza -n "__fish_balanza_using_subcommand experiment; and not __fish_seen_subcommand_from list show start stop" -f -a "show" -d 'Show the experiment of an upstream: its arms, and what follows so far'
complete -c balanza -n "__fish_balanza_using_subcommand experiment; and not __fish_seen_subcommand_from list show start stop" -f -a "start" -d 'Begin an experiment'
complete -c balanza -n "__fish_balanza_using_subcommand experiment; and not __fish_seen_subcommand_from list show start stop" -f -a "stop" -d 'End the experiment of an upstream and go back to its method'
complete -c balanza -n "__fish_balanza_using_subcommand experiment; and __fish_seen_subcommand_from list" -l url -d 'Where the API is' -r
complete -c balanza -n "__fish_balanza_using_subcommand experiment; and __fish_seen_subcommand_from list" -l protocol -d 'Which upstream, if http and stream have one of the same name' -r -f -a "http\t''
stream\t''"
complete -c balanza -n "__fish_balanza_using_subcommand experiment; and __fish_seen_subcommand_from list" -l json -d 'Print JSON'
complete -c balanza -n "__fish_balanza_using_subcommand experiment; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help'
complete -c balanza -n "__fish_balanza_using_subcommand experiment; and __fish_seen_subcommand_from show" -l url -d 'Where the API is' -r
complete -c balanza -n "__fish_balanza_using_subcommand experiment; and __fish_seen_subcommand_from show" -l protocol -d 'Which upstream, if http and stream have one of the same name' -r -f -a "http\t''
stream\t''"
complete -c balanza -n "__fish_balanza_using_subcommand experiment; and __fish_seen_subcommand_from show" -l wait -d 'Wait until it has ended'
complete -c balanza -n "__fish_balanza_using_subcommand experiment; and __fish_seen_subcommand_from show" -l json -d 'Print JSON'
complete -c balanza -n "__fish_balanza_using_subcommand experiment; and __fish_seen_subcommand_from show" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c balanza -n "__fish_balanza_using_subcommand experiment; and __fish_seen_subcommand_from start" -l arm -d 'A method that is compared with that of the upstream, as in a configuration; several times for several' -r
complete -c balanza -n "__fish_balanza_using_subcommand experiment; and __fish_seen_subcommand_from start" -l block -d 'How long an arm runs: 60s, 5m' -r
complete -c balanza -n "__fish_balanza_using_subcommand experiment; and __fish_seen_subcommand_from start" -l washout -d 'The beginning of a block, which does not count' -r
complete -c balanza -n "__fish_balanza_using_subcommand experiment; and __fish_seen_subcommand_from start" -l rounds -d 'How many blocks of each arm' -r
complete -c balanza -n "__fish_balanza_using_subcommand experiment; and __fish_seen_subcommand_from start" -l seed -d 'Of the order of the blocks' -r
complete -c balanza -n "__fish_balanza_using_subcommand experiment; and __fish_seen_subcommand_from start" -l errors -d 'Guard: the part of the requests that may fail, as in 5%' -r
complete -c balanza -n "__fish_balanza_using_subcommand experiment; and __fish_seen_subcommand_from start" -l p99 -d 'Guard: the longest p99, as in 500ms' -r
complete -c balanza -n "__fish_balanza_using_subcommand experiment; and __fish_seen_subcommand_from start" -l p99-ratio -d 'Guard: the greatest ratio of an arm\'s p99 to that of the upstream\'s method, as in 1.5' -r
complete -c balanza -n "__fish_balanza_using_subcommand experiment; and __fish_seen_subcommand_from start" -l full -d 'Guard: the part of the servers\' max_conns that may be in use, as in 90%' -r
complete -c balanza -n "__fish_balanza_using_subcommand experiment; and __fish_seen_subcommand_from start" -l requests -d 'Requests of a block before a guard judges it' -r
complete -c balanza -n "__fish_balanza_using_subcommand experiment; and __fish_seen_subcommand_from start" -l url -d 'Where the API is' -r
complete -c balanza -n "__fish_balanza_using_subcommand experiment; and __fish_seen_subcommand_from start" -l protocol -d 'Which upstream, if http and stream have one of the same name' -r -f -a "http\t''
stream\t''"
complete -c balanza -n "__fish_balanza_using_subcommand experiment; and __fish_seen_subcommand_from start" -l json -d 'Print JSON'
complete -c balanza -n "__fish_balanza_using_subcommand experiment; and __fish_seen_subcommand_from start" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c balanza -n "__fish_balanza_using_subcommand experiment; and __fish_seen_subcommand_from stop" -l url -d 'Where the API is' -r
complete -c balanza -n "__fish_balanza_using_subcommand experiment; and __fish_seen_subcommand_from stop" -l protocol -d 'Which upstream, if http and stream have one of the same name' -r -f -a "http\t''
stream\t''"
complete -c balanza -n "__fish_balanza_using_subcommand experiment; and __fish_seen_subcommand_from stop" -l json -d 'Print JSON'
complete -c balanza -n "__fish_balanza_using_subcommand experiment; and __fish_seen_subcommand_from stop" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c balanza -n "__fish_balanza_using_subcommand explain" -s c -d 'The configuration; without it the one that balanza serves' -r -F
complete -c balanza -n "__fish_balanza_using_subcommand explain" -s p -d 'Where relative paths in the configuration start' -r -F
complete -c balanza -n "__fish_balanza_using_subcommand explain" -s g -d 'Directives in front of the configuration' -r
complete -c balanza -n "__fish_balanza_using_subcommand explain" -l url -d 'Where the API is that is asked how the servers are now' -r
complete -c balanza -n "__fish_balanza_using_subcommand explain" -l json -d 'Print JSON'
complete -c balanza -n "__fish_balanza_using_subcommand explain" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c balanza -n "__fish_balanza_using_subcommand doctor" -s c -d 'The configuration; without it the one that balanza serves' -r -F
complete -c balanza -n "__fish_balanza_using_subcommand doctor" -s p -d 'Where relative paths in the configuration start' -r -F
complete -c balanza -n "__fish_balanza_using_subcommand doctor" -s g -d 'Directives in front of the configuration' -r
complete -c balanza -n "__fish_balanza_using_subcommand doctor" -l json -d 'Print JSON'
complete -c balanza -n "__fish_balanza_using_subcommand doctor" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c balanza -n "__fish_balanza_using_subcommand migrate" -l from -d 'What the file is; without this its text says so' -r -f -a "nginx\t''
haproxy\t''"
complete -c balanza -n "__fish_balanza_using_subcommand migrate" -s o -l output -d 'With a haproxy.cfg: where the result goes instead of standard output' -r -F
complete -c balanza -n "__fish_balanza_using_subcommand migrate" -l nginx -d 'NGINX\'s program' -r -F
complete -c balanza -n "__fish_balanza_using_subcommand migrate" -l json -d 'Print JSON'
complete -c balanza -n "__fish_balanza_using_subcommand migrate" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c balanza -n "__fish_balanza_using_subcommand help" -l all -d 'Print the whole manual'
complete -c balanza -n "__fish_balanza_using_subcommand help" -s h -l help -d 'Print help'
