/* Fault events as the DCMI interface has them (docs/spec/dcmi.md#5.2), and who receives them. */
#ifndef FAULT_EVENTS_H
#define FAULT_EVENTS_H

struct fault_event {
    unsigned int event_id;
    unsigned short deviceid;
    unsigned char node_type, node_id, sub_node_type, sub_node_id, severity, assertion;
    int event_serial_num, notify_serial_num;
    unsigned long long alarm_raised_time;
    char event_name[256], additional_info[32];
    unsigned char resv[32];
};

struct event {
    int type;
    struct fault_event fault;
};

struct event_filter {
    unsigned long long filter_flag;
    unsigned int event_id;
    unsigned char severity, node_type, resv[32];
};

typedef void (*fault_handler)(struct event *);

static fault_handler subscriber;

#endif
