package wire

import "fmt"

// Code is the outcome of a request in the header of its reply. It implements error; CodeOK is the
// zero value and is no error, so convert with Err where an error is wanted. A server sends only the
// codes listed here: client libraries fail in odd ways on others.
type Code int32

// All codes of the protocol (docs/protocol/wire.md section 8.1).
const (
	CodeOK                           Code = 0
	CodeSystemError                  Code = -1 // a category; never sent
	CodeRuntimeInconsistency         Code = -2 // an op of a multi that follows the failed one
	CodeDataInconsistency            Code = -3
	CodeConnectionLoss               Code = -4 // only inside clients
	CodeMarshallingError             Code = -5 // the request could not be decoded
	CodeUnimplemented                Code = -6 // unknown op, or one that is switched off
	CodeOperationTimeout             Code = -7 // only inside clients
	CodeBadArguments                 Code = -8
	CodeUnknownSession               Code = -12
	CodeNewConfigNoQuorum            Code = -13
	CodeReconfigInProgress           Code = -14
	CodeAPIError                     Code = -100 // a category; never sent
	CodeNoNode                       Code = -101
	CodeNoAuth                       Code = -102
	CodeBadVersion                   Code = -103
	CodeNoChildrenForEphemerals      Code = -108
	CodeNodeExists                   Code = -110
	CodeNotEmpty                     Code = -111
	CodeSessionExpired               Code = -112
	CodeInvalidCallback              Code = -113
	CodeInvalidACL                   Code = -114
	CodeAuthFailed                   Code = -115
	CodeSessionMoved                 Code = -118 // never sent: the connection is closed instead
	CodeNotReadOnly                  Code = -119 // a write on a server that only reads
	CodeEphemeralOnLocalSession      Code = -120
	CodeNoWatcher                    Code = -121
	CodeRequestTimeout               Code = -122 // only inside clients
	CodeReconfigDisabled             Code = -123
	CodeSessionClosedRequireSASLAuth Code = -124 // the reply, then the connection is closed
	CodeQuotaExceeded                Code = -125
	CodeThrottledOp                  Code = -127
)

// Error returns the name of c as in ZooKeeper's KeeperException.Code, or "code" and the number when
// it has none.
func (c Code) Error() string {
	if text, ok := codeTexts[c]; ok {
		return text
	}
	return fmt.Sprintf("code%d", int32(c))
}

// Err returns c as an error, nil for CodeOK.
func (c Code) Err() error {
	if c == CodeOK {
		return nil
	}
	return c
}

var codeTexts = map[Code]string{
	CodeOK:                           "Ok",
	CodeSystemError:                  "SystemError",
	CodeRuntimeInconsistency:         "RuntimeInconsistency",
	CodeDataInconsistency:            "DataInconsistency",
	CodeConnectionLoss:               "ConnectionLoss",
	CodeMarshallingError:             "MarshallingError",
	CodeUnimplemented:                "Unimplemented",
	CodeOperationTimeout:             "OperationTimeout",
	CodeBadArguments:                 "BadArguments",
	CodeUnknownSession:               "UnknownSession",
	CodeNewConfigNoQuorum:            "NewConfigNoQuorum",
	CodeReconfigInProgress:           "ReconfigInProgress",
	CodeAPIError:                     "APIError",
	CodeNoNode:                       "NoNode",
	CodeNoAuth:                       "NoAuth",
	CodeBadVersion:                   "BadVersion",
	CodeNoChildrenForEphemerals:      "NoChildrenForEphemerals",
	CodeNodeExists:                   "NodeExists",
	CodeNotEmpty:                     "NotEmpty",
	CodeSessionExpired:               "SessionExpired",
	CodeInvalidCallback:              "InvalidCallback",
	CodeInvalidACL:                   "InvalidACL",
	CodeAuthFailed:                   "AuthFailed",
	CodeSessionMoved:                 "SessionMoved",
	CodeNotReadOnly:                  "NotReadOnly",
	CodeEphemeralOnLocalSession:      "EphemeralOnLocalSession",
	CodeNoWatcher:                    "NoWatcher",
	CodeRequestTimeout:               "RequestTimeout",
	CodeReconfigDisabled:             "ReconfigDisabled",
	CodeSessionClosedRequireSASLAuth: "SessionClosedRequireSaslAuth",
	CodeQuotaExceeded:                "QuotaExceeded",
	CodeThrottledOp:                  "ThrottledOp",
}
