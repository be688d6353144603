package sim

// Workloads are the names that Simulation.Workload may list, separated by commas: what the clients of server/simtest do.
var Workloads = []string{"locks", "foreign-locks", "registers", "pipes"}
