// Package run does one run of jepsen: it starts a cluster of real processes, lets clients work on
// it while nemeses break it, heals it, and has checkers judge the merged history of the clients. It
// never touches a member other than as an operator or a failing machine would. Begin with Test.Run,
// then stage (the run in its order), nemesis and strike (the faults, and how they are mended),
// field (the target of nemeses), planner (which faults may overlap), machine (how busy the computer
// was) and Client (the process of a client). A seed fixes the plans of the nemeses; the leader, and
// the answers to clients, are up to the processes. Every goroutine ends with Run.
package run
