// Package validate turns resources into the model, or into Problems that say why not. It is pure: it reads bytes and
// API objects it is given, never changes them, and reports everything it does not use.
//
// One exported function per kind (Pod, NetworkPolicy, ...) takes the API object and returns the update, the object's
// problems, and whether it may be used. When that last value is false the object is rejected and the update must not be
// sent: the version before it stays in force (semantics D-1). An update whose value is nil, with true, says that the
// object stands for nothing, such as a pod of the host network.
//
// Table.Parse does the same for a manifest file. To add a kind, write its function in a file of its own and give it a row
// in package kinds.
package validate
