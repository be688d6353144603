package sim

import "lockkeeper/jepsen/workload"

// Workloads are the names that Simulation.Workload may list, separated by commas: what the clients of server/simtest do,
// and the workloads of package jepsen/workload.
func Workloads() []string {
	return append([]string{"locks", "foreign-locks", "registers", "pipes"}, workload.Names()...)
}
