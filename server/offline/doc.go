// Package offline works on the data of a member that does not run: [Import] and [Export] exchange
// it with ZooKeeper, [Inspect] shows it, [CheckFiles] and [CheckData] report the faults that a
// start would refuse, [Survey] and [Recover] begin a new cluster from the disk of a lost one,
// [ConvertLog] changes the kind of its log. Each locks the data directories (package datadir), so a
// running member is never disturbed; the checks only read, and take no lock. A start calls
// [OpenStores], which opens the stores, after an import if the configuration asks for one.
package offline
